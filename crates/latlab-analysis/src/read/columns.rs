//! Which columns of another tool's rows are what, and requests from them.

use std::borrow::Cow;

use anyhow::{bail, ensure, Context, Result};

use super::quantity::{number, short, time, whole, SizeUnit, TimeUnit};
use super::Options;
use crate::request::{Request, Run, Unit};

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

/// Names whose unit their makers define: nginx's variable, and curl's.
const SECONDS: &[&str] = &["request_time", "time_total"];

/// A column: its place among those of the file, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<U> {
    pub place: usize,
    pub name: String,
    pub unit: Option<U>,
}

/// What is where.
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
fn plain(name: &str) -> String {
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

/// The name without its unit, and the unit.
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
        // In nested objects the last part tells.
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
    /// Finds what the user named, or what names are usual for.
    pub fn of(names: &[String], options: &Options) -> Result<Columns> {
        let plain_names: Vec<String> = names.iter().map(|name| plain(name)).collect();
        let has = |name: &str| plain_names.iter().any(|other| other == name);
        // Of JMeter and of hey, whose files have no units.
        let jmeter = has("timestamp") && has("elapsed") && has("responsecode");
        let hey = has("response_time") && has("dns_dialup");
        let latency = match &options.latency_column {
            Some(name) => Some(named(names, name, TimeUnit::named)?),
            // Its `Latency` is up to the first byte.
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

/// Makes requests of rows.
#[derive(Debug)]
pub struct Assembler {
    pub columns: Columns,
    pub run: Run,
    /// Whether latencies have a unit; known from the first one.
    has_unit: Option<bool>,
    first_start: Option<i128>,
    times_unclear: bool,
    connections: rustc_hash::FxHashMap<String, u32>,
    /// Rows without a size.
    sizeless: u64,
}

impl Assembler {
    pub fn new(run: Run, columns: Columns) -> Assembler {
        Assembler {
            columns,
            run,
            has_unit: None,
            first_start: None,
            times_unclear: false,
            connections: Default::default(),
            sizeless: 0,
        }
    }

    /// `cell`: what stands in a column; None if nothing does.
    pub fn add<'a>(&mut self, cell: impl Fn(usize) -> Option<Cow<'a, str>>) -> Result<()> {
        let filled = |place: usize| cell(place).filter(|text| !text.trim().is_empty());
        let column = |name: &str| format!("in the column `{}`", short(name));
        if let Some(error) = self.columns.error.and_then(filled) {
            self.run.fail(&error);
            return Ok(());
        }
        if let Some(status) = self.columns.status.and_then(filled) {
            // JMeter has texts for requests that got no answer.
            match status.trim().parse::<f64>() {
                Ok(code) if (200.0..400.0).contains(&code) => {}
                Ok(_) | Err(_) => {
                    self.run.fail(&format!("status {}", status.trim()));
                    return Ok(());
                }
            }
        }
        let Some(latency) = filled(self.columns.latency.place) else {
            self.run.fail("no latency");
            return Ok(());
        };
        let latency = self
            .latency(&latency)
            .with_context(|| column(&self.columns.latency.name))?;
        let size = match &self.columns.size {
            Some(size) => match filled(size.place) {
                // `-` is what logs have where there is no body.
                Some(text) if text.trim() != "-" => {
                    let unit = size.unit.map_or(1.0, SizeUnit::bytes);
                    let bytes = number(&text).and_then(|value| whole(value * unit));
                    bytes.with_context(|| column(&size.name))?
                }
                _ => {
                    self.sizeless += 1;
                    Request::NO_SIZE
                }
            },
            None => Request::NO_SIZE,
        };
        let begin_ns = match &self.columns.start {
            Some(start) => match filled(start.place) {
                Some(text) => {
                    let (unit, name) = (start.unit, start.name.clone());
                    self.start(&text, unit).with_context(|| column(&name))?
                }
                None => {
                    self.times_unclear = true;
                    0
                }
            },
            None => 0,
        };
        let connection = match self.columns.connection.and_then(filled) {
            Some(name) => {
                let next = self.connections.len() as u32;
                match self.connections.get(name.as_ref()) {
                    Some(number) => *number,
                    None => {
                        self.connections.insert(name.into_owned(), next);
                        next
                    }
                }
            }
            None => 0,
        };
        self.run.push(Request {
            begin_ns,
            sent_ns: begin_ns,
            latency,
            size,
            connection,
            is_warm_up: false,
        })
    }

    fn latency(&mut self, text: &str) -> Result<u64> {
        let (value, unit) = time(text)?;
        let unit = unit.or(self.columns.latency.unit);
        ensure!(
            *self.has_unit.get_or_insert(unit.is_some()) == unit.is_some(),
            "some have a unit and some have none: say which it is with --latency-unit"
        );
        whole(value * unit.map_or(Unit::Unstated.ticks(), TimeUnit::ns))
    }

    /// In ns since the first one.
    fn start(&mut self, text: &str, unit: Option<TimeUnit>) -> Result<i64> {
        let exact = text.trim().parse::<u64>().ok().zip(unit);
        let absolute = if let Some((value, unit)) = exact {
            // Nanoseconds since 1970 have more digits than a float.
            i128::from(value) * unit.ns() as i128
        } else if let Ok((value, stated)) = time(text) {
            match stated.or(unit) {
                Some(unit) => i128::from(whole(value * unit.ns())?),
                None => {
                    self.times_unclear = true;
                    return Ok(0);
                }
            }
        } else {
            let Ok(moment) = text.trim().parse::<jiff::Timestamp>() else {
                bail!(
                    "`{}` is neither a number nor a time as in RFC 3339",
                    short(text)
                );
            };
            moment.as_nanosecond()
        };
        let first = *self.first_start.get_or_insert(absolute);
        i64::try_from(absolute - first).context("times are too far from each other")
    }

    pub fn finish(mut self) -> Run {
        let run = &mut self.run;
        if self.has_unit == Some(false) {
            run.unit = Unit::Unstated;
            run.caveats.push(format!(
                "The file does not say what unit `{}` is in, so latencies are in whatever that is: \
                 --latency-unit says it.",
                short(&self.columns.latency.name)
            ));
        }
        match &self.columns.size {
            None => run.caveats.push(
                "The file has no sizes: without them there is neither service inversion nor a breakdown \
                 by size."
                    .to_string(),
            ),
            Some(size) if size.unit.is_none() && !plain(&size.name).contains("byte") => run.caveats.push(format!(
                "Sizes, from the column `{}`, are taken for bytes.",
                short(&size.name)
            )),
            Some(_) => {}
        }
        if let Some(start) = &self.columns.start {
            if self.times_unclear {
                run.caveats.push(format!(
                    "When requests began is not known: the column `{}` has no unit (--start-unit) or is \
                     empty in places.",
                    short(&start.name)
                ));
                for request in &mut run.requests {
                    (request.begin_ns, request.sent_ns) = (0, 0);
                }
            } else {
                run.has_times = run.unit == Unit::Nanoseconds;
                // Later than 1990, so that it is no time since the start of something.
                let since_1970 = self
                    .first_start
                    .filter(|first| *first > 631_152_000_000_000_000);
                run.started_realtime_ns = since_1970.and_then(|first| i64::try_from(first).ok());
            }
        }
        run.has_connections = self.columns.connection.is_some();
        self.run
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
