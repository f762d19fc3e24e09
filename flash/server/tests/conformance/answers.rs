// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads answers as strictly as RFC 9112 has them written.

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    is_head: bool,
}

impl Answer {
    /// Takes the next answer from what was received.
    pub fn take(received: &mut &[u8], is_head: bool) -> Result<Answer, String> {
        let end = received.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.ok_or("there is no head")?;
        let head = std::str::from_utf8(&received[..end]).map_err(|_| "the head is no text")?;
        if head
            .replace("\r\n", "")
            .contains(|c: char| c.is_ascii_control())
        {
            return Err("the head has control characters".to_string());
        }
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default();
        let status = line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.split_once(' '));
        let status = status.filter(|(code, reason)| code.len() == 3 && !reason.is_empty());
        let status = status.and_then(|(code, _)| code.parse().ok());
        let status = status.ok_or_else(|| format!("the status line is wrong: {line}"))?;
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line
                .split_once(": ")
                .ok_or_else(|| format!("no field: {line}"))?;
            let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty()
                || !name.chars().all(is_token)
                || value.trim() != value
                || value.is_empty()
            {
                return Err(format!("a wrong field: {line}"));
            }
            if fields
                .iter()
                .any(|(other, _): &(String, String)| other.eq_ignore_ascii_case(name))
            {
                return Err(format!("a field is there twice: {line}"));
            }
            fields.push((name.to_string(), value.to_string()));
        }
        let mut answer = Answer {
            status,
            fields,
            body: Vec::new(),
            is_head,
        };
        *received = &received[end + 4..];
        let has_body = !is_head && status != 204 && status != 304;
        let length = match (answer.field("content-length"), has_body) {
            (Some(length), true) => length.parse().map_err(|_| "a wrong Content-Length")?,
            (None, true) => return Err("there is no Content-Length".to_string()),
            (_, false) => 0,
        };
        if received.len() < length {
            return Err(format!(
                "{} bytes of the body are missing",
                length - received.len()
            ));
        }
        let (body, rest) = received.split_at(length);
        answer.body = body.to_vec();
        *received = rest;
        Ok(answer)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let named = self
            .fields
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str())
    }

    /// What RFC 9110 demands of every answer, and of those with this status.
    pub fn check(&self) -> Result<(), String> {
        let has = |name: &str| self.field(name).is_some();
        let date = self
            .field("date")
            .and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.ok_or("there is no valid Date")?;
        if httpdate::fmt_http_date(date) != self.field("date").unwrap_or_default() {
            return Err("Date has not the preferred form".to_string());
        }
        if let Some(modified) = self.field("last-modified") {
            let modified =
                httpdate::parse_http_date(modified).map_err(|_| "a wrong Last-Modified")?;
            if modified > date {
                return Err("Last-Modified is in the future".to_string());
            }
        }
        let demands: &[(&str, bool)] = match self.status {
            200 => &[
                ("content-type", true),
                ("content-length", true),
                ("content-range", false),
            ],
            204 => &[
                ("content-length", false),
                ("content-type", false),
                ("allow", true),
            ],
            206 => &[
                ("content-type", true),
                ("etag", true),
                ("last-modified", true),
            ],
            301 => &[("location", true)],
            304 => &[
                ("content-length", false),
                ("content-type", false),
                ("content-encoding", false),
                ("last-modified", false),
                ("etag", true),
            ],
            405 => &[("allow", true), ("content-type", true)],
            416 => &[("content-range", true), ("etag", false)],
            _ => &[
                ("content-type", true),
                ("etag", false),
                ("last-modified", false),
            ],
        };
        for (name, is_wanted) in demands {
            if has(name) != *is_wanted {
                return Err(format!(
                    "{} must {} {name}",
                    self.status,
                    if *is_wanted { "have" } else { "not have" }
                ));
            }
        }
        if self.status == 206 {
            self.check_parts()?;
        }
        match has("transfer-encoding")
            || (self.status >= 400 && !self.is_head && self.body.is_empty())
        {
            true => Err("a coding without need, or an error without a page".to_string()),
            false => Ok(()),
        }
    }

    /// One part, or several as `multipart/byteranges`, each of them as long as it says.
    fn check_parts(&self) -> Result<(), String> {
        let kind = self.field("content-type").unwrap_or_default();
        let Some(boundary) = kind.strip_prefix("multipart/byteranges; boundary=") else {
            let range = self
                .field("content-range")
                .ok_or("206 without Content-Range")?;
            return match range_length(range) == Some(self.body.len()) {
                true => Ok(()),
                false => Err("Content-Range and the body differ".to_string()),
            };
        };
        if self.field("content-range").is_some() {
            return Err("multipart with Content-Range".to_string());
        }
        let body = String::from_utf8_lossy(&self.body);
        let delimiter = format!("\r\n--{boundary}");
        let parts: Vec<&str> = body.split(delimiter.as_str()).collect();
        let ["", parts @ .., "--\r\n"] = parts.as_slice() else {
            return Err("the parts do not begin or end as they should".to_string());
        };
        for part in parts {
            let (head, content) = part.split_once("\r\n\r\n").ok_or("a part without a head")?;
            let range = head
                .split("\r\n")
                .find_map(|line| line.strip_prefix("Content-Range: "));
            if range.and_then(range_length) != Some(content.len())
                || !head.contains("\r\nContent-Type: ")
            {
                return Err(format!("a wrong part: {part}"));
            }
        }
        Ok(())
    }
}

/// `bytes FIRST-LAST/SIZE`
fn range_length(range: &str) -> Option<usize> {
    let (part, size) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let size: usize = size.parse().ok()?;
    (first <= last && last < size).then_some(last + 1 - first)
}
