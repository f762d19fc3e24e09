//! Finds the meaning of the columns in another tool's rows.

use anyhow::{bail, Result};

use super::quantity::{short, SizeUnit, TimeUnit};
use super::Options;

const LATENCY: &[&str] = &[
    "latency",
    "duration",
    "response_time",
    "responsetime",
    "resp_time",
    "elapsed",
    "elapsed_time",
    "request_time",
    "requesttime",
    "total_time",
    "time_total",
    "ttlb",
    "time_taken",
    "rt",
];
const SIZE: &[&str] = &[
    "size",
    "bytes",
    "response_size",
    "resp_size",
    "body_size",
    "body_bytes",
    "body_bytes_sent",
    "bytes_sent",
    "bytes_in",
    "bytes_received",
    "received",
    "received_bytes",
    "response_bytes",
    "len_bytes",
    "length",
    "content_length",
    "response_length",
    "transfer_size",
    "size_download",
    "file_size",
];
const START: &[&str] = &[
    "start",
    "start_time",
    "started",
    "timestamp",
    "ts",
    "begin",
    "offset",
];
const STATUS: &[&str] = &[
    "status",
    "status_code",
    "code",
    "response_code",
    "responsecode",
    "http_status",
    "http_code",
];
const ERROR: &[&str] = &["error"];
const CONNECTION: &[&str] = &["connection", "connection_id", "conn", "conn_id"];

/// Names with a defined unit: nginx's variable, and curl's.
const SECONDS: &[&str] = &["request_time", "time_total"];

/// A column: its index in the file, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<U> {
    pub place: usize,
    pub name: String,
    pub unit: Option<U>,
}

/// The column of each quantity.
#[derive(Debug, Clone)]
pub struct Columns {
    pub latency: Column<TimeUnit>,
    pub size: Option<Column<SizeUnit>>,
    pub start: Option<Column<TimeUnit>>,
    pub status: Option<usize>,
    pub error: Option<usize>,
    pub connection: Option<usize>,
}

/// `Latency (ms)` is `latency`, in ms.
pub fn plain(name: &str) -> String {
    let letters = name.trim().chars().map(|c| {
        if c.is_alphanumeric() {
            c.to_lowercase().next().unwrap_or(c)
        } else {
            '_'
        }
    });
    let mut plain = String::new();
    for letter in letters {
        if letter != '_' || !plain.ends_with('_') {
            plain.push(letter);
        }
    }
    plain.trim_matches('_').to_string()
}

/// Splits a name into the name without its unit, and the unit.
fn split<U>(name: &str, unit: impl Fn(&str) -> Option<U>) -> (String, Option<U>) {
    let plain = plain(name);
    if let Some((base, last)) = plain.rsplit_once('_') {
        if let Some(unit) = unit(last) {
            return (base.to_string(), Some(unit));
        }
    }
    (plain, None)
}

fn find<U: Copy>(
    names: &[String],
    known: &[&str],
    unit: impl Fn(&str) -> Option<U>,
    what: &str,
) -> Result<Option<Column<U>>> {
    let mut found: Option<Column<U>> = None;
    for (place, name) in names.iter().enumerate() {
        // In nested objects, the last part of the name counts.
        let last = name.rsplit('.').next().unwrap_or(name);
        let (base, unit) = if known.contains(&plain(last).as_str()) {
            let (_, unit) = split(last, &unit);
            (plain(last), unit)
        } else {
            split(last, &unit)
        };
        if !known.contains(&base.as_str()) {
            continue;
        }
        if let Some(other) = &found {
            bail!(
                "both `{}` and `{}` could be the {what}: say which with --{what}-column",
                short(&other.name),
                short(name)
            );
        }
        found = Some(Column {
            place,
            name: name.clone(),
            unit,
        });
    }
    Ok(found)
}

fn named<U>(names: &[String], wanted: &str, unit: impl Fn(&str) -> Option<U>) -> Result<Column<U>> {
    let place = names.iter().position(|name| name == wanted);
    let Some(place) = place else {
        bail!(
            "there is no column `{}`: it has {}",
            short(wanted),
            list(names)
        );
    };
    let last = wanted.rsplit('.').next().unwrap_or(wanted);
    Ok(Column {
        place,
        name: wanted.to_string(),
        unit: split(last, unit).1,
    })
}

pub fn list(names: &[String]) -> String {
    let mut list: Vec<String> = names
        .iter()
        .take(20)
        .map(|name| format!("`{}`", short(name)))
        .collect();
    if names.len() > 20 {
        list.push(format!("{} more", names.len() - 20));
    }
    list.join(", ")
}

impl Columns {
    /// Finds the columns that the user named, or those with usual names.
    pub fn of(names: &[String], options: &Options) -> Result<Columns> {
        let plain_names: Vec<String> = names.iter().map(|name| plain(name)).collect();
        let has = |name: &str| plain_names.iter().any(|other| other == name);
        // Files of JMeter and hey do not state their units.
        let jmeter = has("timestamp") && has("elapsed") && has("responsecode");
        let hey = has("response_time") && has("dns_dialup");
        let latency = match &options.latency_column {
            Some(name) => Some(named(names, name, TimeUnit::named)?),
            // JMeter's `Latency` ends at the first byte.
            None if jmeter => find(names, &["elapsed"], TimeUnit::named, "latency")?,
            None => find(names, LATENCY, TimeUnit::named, "latency")?,
        };
        let Some(mut latency) = latency else {
            bail!(
                "no column is known for the latency: say which with --latency-column; it has {}",
                list(names)
            );
        };
        let known_unit = match plain(&latency.name).as_str() {
            name if SECONDS.contains(&name) => Some(TimeUnit::S),
            "elapsed" if jmeter => Some(TimeUnit::Ms),
            "response_time" if hey => Some(TimeUnit::S),
            _ => None,
        };
        latency.unit = options.latency_unit.or(latency.unit).or(known_unit);
        let size = match &options.size_column {
            Some(name) => Some(named(names, name, SizeUnit::named)?),
            None => find(names, SIZE, SizeUnit::named, "size")?,
        };
        let mut start = match &options.start_column {
            Some(name) => Some(named(names, name, TimeUnit::named)?),
            None => find(names, START, TimeUnit::named, "start")?,
        };
        if let Some(start) = &mut start {
            let known_unit = match plain(&start.name).as_str() {
                "timestamp" if jmeter => Some(TimeUnit::Ms),
                "offset" if hey => Some(TimeUnit::S),
                _ => None,
            };
            start.unit = options.start_unit.or(start.unit).or(known_unit);
        }
        let place = |known: &[&str]| {
            let is_known = |name: &String| known.contains(&name.as_str());
            plain_names.iter().position(is_known)
        };
        Ok(Columns {
            latency,
            size: size.map(|size| Column {
                unit: options.size_unit.or(size.unit),
                ..size
            }),
            start,
            status: place(STATUS),
            error: place(ERROR),
            connection: place(CONNECTION),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Columns> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        Columns::of(&names, &Options::default())
    }

    #[test]
    fn usual_names_are_known_with_their_units() {
        let cases = [
            (&["size", "latency_ms"][..], 1, Some(TimeUnit::Ms)),
            (&["Response Time (us)", "Bytes"], 0, Some(TimeUnit::Us)),
            (
                &["bytes", "duration.seconds", "latency-ns"],
                2,
                Some(TimeUnit::Ns),
            ),
            (&["body_bytes_sent", "request_time"], 1, Some(TimeUnit::S)),
            (&["size", "latency"], 1, None),
        ];
        for (names, place, unit) in cases {
            let found = of(names).expect("columns");
            assert_eq!(
                (found.latency.place, found.latency.unit),
                (place, unit),
                "{names:?}"
            );
            assert!(found.size.is_some());
        }
        let jmeter = of(&[
            "timeStamp",
            "elapsed",
            "label",
            "responseCode",
            "bytes",
            "sentBytes",
            "Latency",
        ])
        .expect("JMeter's");
        assert_eq!(jmeter.latency.unit, Some(TimeUnit::Ms));
        assert_eq!(jmeter.start.expect("a start").unit, Some(TimeUnit::Ms));
        assert_eq!(jmeter.status, Some(3));
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        let said = |names: &[&str]| format!("{:#}", of(names).expect_err("no columns"));
        assert!(said(&["a", "b"]).contains("--latency-column; it has `a`, `b`"));
        assert!(said(&["latency_ms", "duration_ms"]).contains("could be the latency"));
        assert!(said(&["latency_ms", "size", "bytes"]).contains("could be the size"));
    }
}
