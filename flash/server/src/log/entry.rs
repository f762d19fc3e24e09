// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of the access log: in the combined format of Apache and nginx, or as an object of JSON.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Combined,
    Json,
}

impl Format {
    /// How `strftime` writes a time.
    pub fn time(self) -> &'static str {
        match self {
            Format::Combined => "%d/%b/%Y:%H:%M:%S +0000",
            Format::Json => "%Y-%m-%dT%H:%M:%S",
        }
    }
}

/// One request.
pub struct Entry<'a> {
    pub peer: Option<IpAddr>,
    /// Who has proved to be it.
    pub user: Option<&'a str>,
    /// As [`Format::time`] says, and the milliseconds of the second.
    pub time: &'a str,
    pub ms: u32,
    /// What the client asked for; `None`: it was no request.
    pub line: Option<&'a str>,
    /// In lower case, without a port.
    pub host: Option<&'a str>,
    pub status: u16,
    /// Of the body.
    pub bytes: u64,
    /// From the end of the head until the kernel has the end of the answer.
    pub duration: Option<Duration>,
    pub tls: Option<&'static str>,
    pub referer: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

impl Entry<'_> {
    pub fn text(&self, format: Format) -> String {
        match format {
            Format::Combined => self.combined(),
            Format::Json => self.json(),
        }
    }

    fn combined(&self) -> String {
        let peer = self
            .peer
            .map_or_else(|| "-".to_string(), |peer| peer.to_string());
        format!(
            "{peer} - {} [{}] \"{}\" {} {} \"{}\" \"{}\"\n",
            self.user.map_or_else(|| "-".to_string(), name),
            self.time,
            quoted(self.line.unwrap_or("-")),
            self.status,
            self.bytes,
            self.referer.map_or_else(|| "-".to_string(), quoted),
            self.user_agent.map_or_else(|| "-".to_string(), quoted),
        )
    }

    fn json(&self) -> String {
        let mut parts = self.line.unwrap_or_default().splitn(3, ' ');
        let row = Row {
            time: format!("{}.{:03}Z", self.time, self.ms),
            client: self.peer,
            user: self.user,
            host: self.host.filter(|host| !host.is_empty()),
            method: parts.next().filter(|method| !method.is_empty()),
            target: parts.next(),
            protocol: parts.next(),
            status: self.status,
            bytes: self.bytes,
            duration_us: self.duration.map(|time| time.as_micros() as u64),
            tls: self.tls,
            referer: self.referer,
            user_agent: self.user_agent,
        };
        let mut line = Vec::with_capacity(256);
        // Writing plain data into memory cannot fail.
        let _ = row.serialize(&mut Serializer::with_formatter(&mut line, Ascii));
        line.push(b'\n');
        String::from_utf8(line).unwrap_or_default()
    }
}

/// The fields of an object, which are always all there.
#[derive(Serialize)]
struct Row<'a> {
    time: String,
    client: Option<IpAddr>,
    user: Option<&'a str>,
    host: Option<&'a str>,
    method: Option<&'a str>,
    target: Option<&'a str>,
    protocol: Option<&'a str>,
    status: u16,
    bytes: u64,
    duration_us: Option<u64>,
    tls: Option<&'static str>,
    referer: Option<&'a str>,
    user_agent: Option<&'a str>,
}

/// Escapes all that is not printable ASCII, so nothing can steer a terminal or end a line for some reader.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some(at) = rest.find(|letter: char| !matches!(letter, ' '..='~')) {
            let (plain, other) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut letters = other.chars();
            let letter = letters.next().unwrap_or_default();
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = letters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// What cannot steer a terminal or look like another field.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            letter => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    quoted.push_str(&format!("\\x{byte:02x}"));
                }
            }
        }
    }
    quoted
}

/// In a field that ends with a space.
fn name(text: &str) -> String {
    match text {
        "" | "-" => format!("\"{text}\""),
        text => quoted(text).replace(' ', "\\x20"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry<'a>(line: Option<&'a str>, user_agent: &'a str) -> Entry<'a> {
        Entry {
            peer: Some([127, 0, 0, 1].into()),
            user: Some("Jo Doe\"\u{e9}"),
            time: "25/Nov/2026:01:02:03 +0000",
            ms: 7,
            line,
            host: Some("a.test"),
            status: 200,
            bytes: 5,
            duration: Some(Duration::from_micros(42)),
            tls: Some("TLSv1.3"),
            referer: None,
            user_agent: Some(user_agent),
        }
    }

    #[test]
    fn lines_are_in_the_combined_format() {
        let line = entry(Some("GET /a\"b\u{1b}[2J HTTP/1.1"), "curl/8").text(Format::Combined);
        assert_eq!(
            line,
            "127.0.0.1 - Jo\\x20Doe\\\"\\xc3\\xa9 [25/Nov/2026:01:02:03 +0000] \"GET /a\\\"b\\x1b[2J HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n"
        );
    }

    #[test]
    fn lines_are_objects_of_json() {
        let entry = Entry {
            time: "2026-11-25T01:02:03",
            ..entry(Some("GET /a HTTP/1.1"), "\u{1f600}\u{85}\"")
        };
        assert_eq!(
            entry.text(Format::Json),
            "{\"time\":\"2026-11-25T01:02:03.007Z\",\"client\":\"127.0.0.1\",\"user\":\"Jo Doe\\\"\\u00e9\",\
             \"host\":\"a.test\",\"method\":\"GET\",\
             \"target\":\"/a\",\"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes\":5,\"duration_us\":42,\
             \"tls\":\"TLSv1.3\",\"referer\":null,\"user_agent\":\"\\ud83d\\ude00\\u0085\\\"\"}\n"
        );
    }

    proptest! {
        #[test]
        fn any_request_is_one_valid_object(line in ".*", agent in any::<String>(), is_none in any::<bool>()) {
            let text = entry((!is_none).then_some(&line), &agent).text(Format::Json);
            let object = text.strip_suffix('\n').expect("a line");
            prop_assert!(object.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{}", object);
            let value: serde_json::Value = serde_json::from_str(object).expect("JSON");
            prop_assert_eq!(value["user_agent"].as_str(), Some(agent.as_str()));
            let parts = ["method", "target", "protocol"].map(|part| value[part].as_str());
            let parts: Vec<&str> = parts.into_iter().flatten().collect();
            let (found, line) = (parts.join(" "), if is_none { "" } else { &line });
            prop_assert_eq!(found.trim_start(), line.trim_start());
        }
    }
}
