//! What a person wants to know first: how many, how long, and what went wrong.

mod edges;
mod gathered;

use std::collections::BTreeMap;
use std::fmt::Write;

use debox_console::printable;
use latlab_analysis::in_flight::{listed, InFlight};
use serde::Serialize;

use crate::load::{Counted, Delays, Mode, Outcome, Step};
use crate::rows::{Lateness, Meta, Row};
use crate::run::Plan;
use crate::units::{bytes, count, time};
use edges::{Edges, Good};
use gathered::{Gathered, Steps};

pub use gathered::StepSummary;

/// Gathers rows.
pub struct Latencies {
    warmup_ns: i64,
    duration_ns: i64,
    all: Gathered,
    steps: Steps,
    in_warmup: u64,
    last_end_ns: i64,
    edges: Edges,
}

impl Latencies {
    /// `steps`: of the rate, in an open loop.
    pub fn new(warmup_ns: i64, duration_ns: i64, steps: &[Step]) -> Latencies {
        Latencies {
            warmup_ns,
            duration_ns,
            all: Gathered::default(),
            steps: Steps::new(steps, warmup_ns),
            in_warmup: 0,
            last_end_ns: 0,
            edges: Edges::default(),
        }
    }

    pub fn add(&mut self, row: &Row) {
        self.steps.add(row);
        if let (Some(end), None) = (row.end_ns, row.failure) {
            if (self.warmup_ns..self.duration_ns).contains(&end) {
                self.all.add_ended(row);
            }
            self.last_end_ns = self.last_end_ns.max(end);
            self.edges
                .add(row.intended_ns, end, self.warmup_ns, self.duration_ns);
        }
        match row.intended_ns < self.warmup_ns {
            true => self.in_warmup += 1,
            false => self.all.add(row),
        }
    }

    /// Why there is nothing to say of the server, if so.
    pub fn nothing(&self) -> Option<String> {
        if !self.all.from_intended.is_empty() {
            return None;
        }
        Some(match self.all.errors.is_empty() {
            true => "no request was to start after the warm-up: nothing was measured".to_string(),
            false => format!(
                "no request was answered well ({})",
                listed(&self.all.errors)
            ),
        })
    }

    /// What the generator processes counted, and whether it fits what the rows say.
    pub fn in_flight(&self, counted: &[Counted]) -> Option<InFlight> {
        let mean_ns = self.all.from_intended.mean();
        let good = Good {
            ended: self.all.ended_within,
            intended: self.all.from_intended.len(),
            mean_ns: (!self.all.from_intended.is_empty()).then_some(mean_ns),
        };
        self.edges.in_flight(counted, &good)
    }

    /// `ended_early`: the run was over before its time.
    pub fn summary(self, plan: &Plan, meta: &Meta, total: &Outcome, ended_early: bool) -> Summary {
        let end_ns = match ended_early || plan.requests.is_some() {
            true => self
                .last_end_ns
                .min(self.duration_ns)
                .max(self.warmup_ns + 1),
            false => self.duration_ns,
        };
        let seconds = (end_ns - self.warmup_ns) as f64 / 1e9;
        let failed = self.all.failed();
        Summary {
            schema: "latlab.run/1",
            url: plan.url.text(),
            mode: meta.mode,
            offered_rps: meta.offered_rps,
            connections: plan.connections,
            seconds,
            steps: self.steps.summaries(end_ns),
            requests: self.all.from_intended.len() + failed,
            ok: self.all.from_intended.len(),
            in_warmup: self.in_warmup,
            errors: self.all.errors,
            throughput_rps: self.all.ended_within as f64 / seconds,
            bytes_per_second: self.all.bytes as f64 / seconds,
            latency_from_intended: Percentiles::of(&self.all.from_intended),
            latency_from_start: Percentiles::of(&self.all.from_start),
            first_byte: Percentiles::of(&self.all.to_first_byte),
            lateness: meta.lateness.unwrap_or_default(),
            reply_lateness: meta.reply_lateness.unwrap_or_default(),
            generator_cpu: meta.generator_cpu.unwrap_or(0.0),
            connections_opened: total.opened,
            retried: total.retried,
            retried_after_reset: total.retried_after_reset,
            unsolicited: total.unsolicited,
            in_flight: meta.in_flight.clone(),
            conforming: match plan.mode {
                Mode::Paced { .. } => Some(conforming(&total.clients)),
                _ => None,
            },
            interrupted: total.interrupted,
            server_ended: None,
            refused: meta.refused.clone(),
        }
    }
}

/// SPECweb99: a connection asks for 400,000 bits in a second, and conforms if it gets 320,000.
pub const PACE_BITS: u64 = 400_000;
pub const CONFORMING_BITS: f64 = 320_000.0;

/// The part of the clients that conform.
fn conforming(clients: &[(u64, i64)]) -> f64 {
    let conforms =
        |(bytes, ns): &&(u64, i64)| *ns > 0 && *bytes as f64 * 8e9 / *ns as f64 > CONFORMING_BITS;
    clients.iter().filter(conforms).count() as f64 / clients.len().max(1) as f64
}

/// Of successful requests, in nanoseconds; at most 0.1 % off.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub mean_ns: i64,
    pub p5_ns: i64,
    pub p50_ns: i64,
    pub p90_ns: i64,
    pub p95_ns: i64,
    pub p99_ns: i64,
    pub p999_ns: i64,
    pub max_ns: i64,
}

impl Percentiles {
    fn of(delays: &Delays) -> Option<Percentiles> {
        (!delays.is_empty()).then(|| Percentiles {
            mean_ns: delays.mean() as i64,
            p5_ns: delays.quantile(0.05),
            p50_ns: delays.quantile(0.5),
            p90_ns: delays.quantile(0.9),
            p95_ns: delays.quantile(0.95),
            p99_ns: delays.quantile(0.99),
            p999_ns: delays.quantile(0.999),
            max_ns: delays.max(),
        })
    }
}

/// `latlab.run/1`.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub schema: &'static str,
    pub url: String,
    pub mode: latlab_analysis::Mode,
    pub offered_rps: Option<f64>,
    pub connections: u32,
    /// Length of what was measured.
    pub seconds: f64,
    /// Each step of the rate, where it has several.
    pub steps: Option<Vec<StepSummary>>,
    /// Requests intended to start in it.
    pub requests: u64,
    pub ok: u64,
    pub in_warmup: u64,
    pub errors: BTreeMap<&'static str, u64>,
    /// Good replies that ended in it.
    pub throughput_rps: f64,
    pub bytes_per_second: f64,
    pub latency_from_intended: Option<Percentiles>,
    pub latency_from_start: Option<Percentiles>,
    pub first_byte: Option<Percentiles>,
    pub lateness: Lateness,
    pub reply_lateness: Lateness,
    pub generator_cpu: f64,
    pub connections_opened: u64,
    /// Sent again on a new connection, since the server had ended the one that was kept alive.
    pub retried: u64,
    /// Those of them whose connection the server had reset.
    pub retried_after_reset: u64,
    pub unsolicited: u64,
    /// Requests in flight; None if no generator process lived to say.
    pub in_flight: Option<InFlight>,
    /// Of paced connections: which part got SPECweb99's least rate.
    pub conforming: Option<f64>,
    pub interrupted: bool,
    /// How a server that latlab started ended before the run did.
    pub server_ended: Option<String>,
    /// Why these figures are not the server's.
    pub refused: Option<String>,
}

impl Summary {
    pub fn text(&self, output: Option<&std::path::Path>) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
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

    fn write_text(&self, out: &mut String, file: Option<&std::path::Path>) -> std::fmt::Result {
        // An open loop opens no more of them than it needs.
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
        ];
        for (name, percentiles) in rows {
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
        if !self.errors.is_empty() {
            writeln!(out, "\nErrors: {}", listed(&self.errors))?;
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
                "{} connections brought bytes that nobody had asked for",
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
