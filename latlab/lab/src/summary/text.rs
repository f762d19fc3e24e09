//! The summary in words.

use std::collections::BTreeMap;
use std::fmt::Write;

use kit_console::printable;
use latlab_analysis::in_flight::{listed, InFlight};

use super::{StepSummary, Summary};
use crate::units::{bytes, count, time};

/// `404: 2, 503: 8`
pub fn by_status(statuses: &BTreeMap<u16, u64>) -> String {
    let each = statuses
        .iter()
        .map(|(status, times)| format!("{status}: {}", count(*times)));
    each.collect::<Vec<_>>().join(", ")
}

impl Summary {
    /// Identifies a run among several: `nginx, load 0.5`.
    pub fn label(&self) -> String {
        let load = match (self.load, self.offered_rps) {
            (Some(load), _) => format!("load {load}"),
            (None, Some(rps)) => format!("{} requests/s", count(rps.round() as u64)),
            (None, None) => format!(
                "closed loop of {} connections",
                count(u64::from(self.connections))
            ),
        };
        format!("{}, {load}", self.server)
    }

    pub fn text(&self, output: Option<&std::path::Path>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut text, output);
        text
    }

    fn write_steps(&self, out: &mut String) -> std::fmt::Result {
        let Some(steps) = &self.steps else {
            return Ok(());
        };
        writeln!(
            out,
            "\nBy step of the rate; latency from the intended start\n  \
            offered/s    served/s    requests    failed      mean       p50       p95       p99     p99.9       max"
        )?;
        for step in steps {
            write!(
                out,
                "{:>11} {:>11} {:>11} {:>9}",
                count(step.offered_rps.round() as u64),
                count(step.throughput_rps.round() as u64),
                count(step.requests),
                count(step.requests - step.ok)
            )?;
            match &step.latency_from_intended {
                Some(p) => {
                    for ns in [p.mean_ns, p.p50_ns, p.p95_ns, p.p99_ns, p.p999_ns, p.max_ns] {
                        write!(out, " {:>9}", time(ns).replace(' ', ""))?;
                    }
                    writeln!(out)?;
                }
                None => writeln!(out, " {:>9}", "none")?,
            }
        }
        writeln!(out, "\nAll steps together:")
    }

    fn write_redirects(&self, out: &mut String) -> std::fmt::Result {
        let redirects: u64 = self.redirects.values().sum();
        if redirects == 0 {
            return Ok(());
        }
        let of = match redirects == self.ok {
            true => "All good replies have".to_string(),
            false => format!(
                "{} of {} good replies have",
                count(redirects),
                count(self.ok)
            ),
        };
        let to = self.location.as_ref().map_or(String::new(), |location| {
            format!("; the first leads to {}", printable(location))
        });
        writeln!(
            out,
            "\n{of} a status of 3xx, which is not followed ({}{to})",
            by_status(&self.redirects)
        )
    }

    fn write_text(&self, out: &mut String, file: Option<&std::path::Path>) -> std::fmt::Result {
        // An open loop opens only as many connections as it needs.
        let offered = match (&self.steps, self.offered_rps) {
            (Some(steps), _) => {
                let rate = |step: &StepSummary| count(step.offered_rps.round() as u64);
                let rates: Vec<String> = steps.iter().map(rate).collect();
                format!("{} requests/s offered, up to", rates.join(", then "))
            }
            (None, Some(rps)) => {
                format!("{} requests/s offered, up to", count(rps.round() as u64))
            }
            (None, None) => "closed loop,".to_string(),
        };
        writeln!(
            out,
            "{}: {offered} {} connections, {:.1} s after {} requests of warm-up",
            printable(&self.url),
            count(u64::from(self.connections)),
            self.seconds,
            count(self.in_warmup)
        )?;
        writeln!(
            out,
            "{} requests, {} good: {} requests/s, {}/s",
            count(self.requests),
            count(self.ok),
            count(self.throughput_rps.round() as u64),
            bytes(self.bytes_per_second as u64)
        )?;
        self.write_steps(out)?;
        writeln!(
            out,
            "\nLatency         mean        p5       p50       p95       p99     p99.9       max"
        )?;
        let rows = [
            ("from intended", &self.latency_from_intended),
            ("from start", &self.latency_from_start),
            ("to first byte", &self.first_byte),
            ("connecting", &self.connecting),
            ("TLS handshake", &self.tls_handshake),
        ];
        for (name, percentiles) in rows {
            // Rows without values are left out.
            if percentiles.is_none() && ["connecting", "TLS handshake"].contains(&name) {
                continue;
            }
            let Some(p) = percentiles else {
                writeln!(out, "{name:<14} none")?;
                continue;
            };
            write!(out, "{name:<13}")?;
            for ns in [
                p.mean_ns, p.p5_ns, p.p50_ns, p.p95_ns, p.p99_ns, p.p999_ns, p.max_ns,
            ] {
                write!(out, " {:>9}", time(ns).replace(' ', ""))?;
            }
            writeln!(out)?;
        }
        self.write_redirects(out)?;
        if let Some(tls) = &self.tls {
            writeln!(out, "\n{}", printable(tls))?;
        }
        if !self.errors.is_empty() {
            write!(out, "\nErrors: {}", listed(&self.errors))?;
            match self.statuses.is_empty() {
                true => writeln!(out)?,
                false => writeln!(out, " (by status: {})", by_status(&self.statuses))?,
            }
        }
        if let Some(why) = &self.tls_error {
            writeln!(out, "TLS: {}", printable(why))?;
        }
        if let Some(all) = &self.latency_with_failures {
            writeln!(
                out,
                "Latency is of the {} good requests alone. With the {} that failed as the slowest, from \
                intended: {}",
                count(self.ok),
                count(self.requests - self.ok),
                all.text()
            )?;
        }
        if let Some(flight) = &self.in_flight {
            writeln!(
                out,
                "\nIn flight: {} when the measured time began, {} when it ended, {:.2} on average \
                ({:.2} not answered well); throughput times mean latency {:.2}",
                count(flight.at_begin),
                count(flight.at_end),
                flight.mean,
                flight.unanswered_mean,
                flight.throughput_times_latency.unwrap_or(0.0)
            )?;
        }
        writeln!(
            out,
            "\nGenerator: {:.0} % CPU; starts late by {} (p99 {}), replies looked at {} late (p99 {}); \
            {} connections opened",
            100.0 * self.generator_cpu,
            time(self.lateness.p50_ns),
            time(self.lateness.p99_ns),
            time(self.reply_lateness.p50_ns),
            time(self.reply_lateness.p99_ns),
            count(self.connections_opened)
        )?;
        if self.retried > 0 {
            writeln!(
                out,
                "{} requests sent again on a new connection: the server had ended the one that was kept \
                alive ({} by a reset)",
                count(self.retried),
                count(self.retried_after_reset)
            )?;
        }
        if self.unsolicited > 0 {
            writeln!(
                out,
                "{} connections brought bytes without a request",
                count(self.unsolicited)
            )?;
        }
        if let Some(file) = file {
            writeln!(out, "Rows: {}", printable(&file.display().to_string()))?;
        }
        for warning in self.in_flight.iter().flat_map(InFlight::warnings) {
            writeln!(out, "WARNING: {}", printable(&warning))?;
        }
        if let Some(why) = &self.refused {
            writeln!(out, "NOT VALID: {}", printable(why))?;
        }
        Ok(())
    }
}
