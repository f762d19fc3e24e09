//! Makes requests from another tool's rows, whose columns are known.

use std::borrow::Cow;

use anyhow::{bail, ensure, Context, Result};

use super::columns::{plain, Columns};
use super::quantity::{number, short, time, whole, SizeUnit, TimeUnit};
use crate::request::{Request, Run, Unit, REQUESTS_MAX};

/// Makes requests from rows.
#[derive(Debug)]
pub struct Assembler {
    pub columns: Columns,
    pub run: Run,
    /// Whether latencies have a unit; decided by the first one.
    has_unit: Option<bool>,
    first_start: Option<i128>,
    times_unclear: bool,
    connections: rustc_hash::FxHashMap<String, u32>,
    /// Number of rows without a size.
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

    /// `cell`: returns the content of a column; `None` if it is empty.
    pub fn add<'a>(&mut self, cell: impl Fn(usize) -> Option<Cow<'a, str>>) -> Result<()> {
        let filled = |place: usize| cell(place).filter(|text| !text.trim().is_empty());
        let column = |name: &str| format!("in the column `{}`", short(name));
        // A request that failed also used its connection.
        let connection = match self.columns.connection.and_then(filled) {
            Some(name) => self.connection(name)?,
            None => 0,
        };
        if let Some(error) = self.columns.error.and_then(filled) {
            match self.run.format {
                "vegeta" => self.run.fail(&without_addresses(&error)),
                _ => self.run.fail(&error),
            }
            return Ok(());
        }
        if let Some(status) = self.columns.status.and_then(filled) {
            // JMeter writes a text if a request got no answer.
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
                // Logs have `-` if there is no body.
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
        self.run.push(Request {
            begin_ns,
            sent_ns: begin_ns,
            latency,
            size,
            connection,
            step: 0,
            is_warm_up: false,
        })
    }

    fn connection(&mut self, name: Cow<'_, str>) -> Result<u32> {
        let next = self.connections.len() as u32;
        if let Some(number) = self.connections.get(name.as_ref()) {
            return Ok(*number);
        }
        ensure!(
            self.connections.len() < REQUESTS_MAX,
            "it has more than {REQUESTS_MAX} connections, and no more are taken at once"
        );
        self.connections.insert(name.into_owned(), next);
        Ok(next)
    }

    fn latency(&mut self, text: &str) -> Result<u64> {
        let (value, unit) = time(text)?;
        let unit = unit.or(self.columns.latency.unit);
        ensure!(
            *self.has_unit.get_or_insert(unit.is_some()) == unit.is_some(),
            "some have a unit and some have none: say which it is with --latency-unit"
        );
        match unit {
            Some(unit) => whole(value * unit.ns()),
            // Keeps all digits until the unit is known.
            None => Ok(value.to_bits()),
        }
    }

    /// In ns since the first start.
    fn start(&mut self, text: &str, unit: Option<TimeUnit>) -> Result<i64> {
        let exact = text.trim().parse::<u64>().ok().zip(unit);
        let absolute = if let Some((value, unit)) = exact {
            // Nanoseconds since 1970 have more digits than a float can represent.
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

    /// Determines the unit of latencies that have none, from their median.
    fn find_unit(&mut self) -> Result<()> {
        let run = &mut self.run;
        // The bits of non-negative floats sort like the numbers.
        let mut bits: Vec<u64> = run.requests.iter().map(|request| request.latency).collect();
        let middle = bits.len() / 2;
        let median = match bits.is_empty() {
            true => 0.0,
            false => f64::from_bits(*bits.select_nth_unstable(middle).1),
        };
        let column = short(&self.columns.latency.name);
        if median == 0.0 {
            run.unit = Unit::Unstated;
            run.caveats.push(format!(
                "The file does not say what unit `{column}` is in, and most latencies are 0, so they are as the file \
                 has them: --latency-unit says it."
            ));
        } else {
            let unit = TimeUnit::by_magnitude(median);
            run.unit_by_magnitude = Some(unit);
            run.caveats.push(format!(
                "The file does not say what unit `{column}` is in. By the magnitude of its values it is taken for {}, \
                 with which the median latency is {}: if it is another, --latency-unit says it.",
                unit.name(),
                kit_units::time((median * unit.ns()) as u64)
            ));
        }
        let ticks = match run.unit_by_magnitude {
            Some(unit) => unit.ns(),
            None => run.unit.ticks(),
        };
        for request in &mut run.requests {
            let value = f64::from_bits(request.latency);
            request.latency =
                whole(value * ticks).with_context(|| format!("in the column `{column}`"))?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Run> {
        if self.has_unit == Some(false) {
            self.find_unit()?;
        }
        let run = &mut self.run;
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
                // Later than 1990, so it is not relative to the start of something.
                let since_1970 = self
                    .first_start
                    .filter(|first| *first > 631_152_000_000_000_000);
                run.started_realtime_ns = since_1970.and_then(|first| i64::try_from(first).ok());
            }
        }
        run.has_connections = self.columns.connection.is_some();
        run.connections_used = self.connections.len() as u64;
        Ok(self.run)
    }
}

/// vegeta has Go's error texts: `Get "http://host/": read tcp 127.0.0.1:4711->127.0.0.1:80: read: connection
/// reset by peer`. Without removing the URL and the local port, each would be a separate reason.
fn without_addresses(error: &str) -> String {
    let after_url = error
        .split_once(" \"")
        .and_then(|(method, rest)| {
            let is_method = method.chars().all(char::is_alphabetic);
            rest.split_once("\": ").filter(|_| is_method)
        })
        .map_or(error, |(_, rest)| rest);
    let words = after_url
        .split(' ')
        .map(|word| word.split_once("->").map_or(word, |(_, remote)| remote));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_is_one_reason() {
        let reset = "read tcp 127.0.0.1:80: read: connection reset by peer";
        for port in [4711, 4712] {
            let error = format!(
                "Get \"http://127.0.0.1/{port}\": read tcp 127.0.0.1:{port}->127.0.0.1:80: read: connection reset \
                 by peer"
            );
            assert_eq!(without_addresses(&error), reset);
        }
        for other in ["unexpected EOF", "503 Service Unavailable", "", "a \"b"] {
            assert_eq!(without_addresses(other), other);
        }
    }
}
