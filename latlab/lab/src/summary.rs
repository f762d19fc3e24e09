//! What a user wants to know first: how many requests, how long they took, and what went wrong.

mod edges;
mod gathered;
mod percentiles;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use latlab_analysis::in_flight::{listed, InFlight};
use serde::Serialize;

use crate::hdr;
use crate::load::{Counted, Delays, Mode, Outcome, Step};
use crate::rows::{Lateness, Meta, Row};
use crate::run::Plan;
use crate::units::time;
use crate::workload::Kind;
use edges::{Edges, Good};
use gathered::{Gathered, Steps};

pub use gathered::StepSummary;
pub use percentiles::Percentiles;
pub use text::by_status;

/// Collects rows.
pub struct Latencies {
    warmup_ns: i64,
    duration_ns: i64,
    all: Gathered,
    steps: Steps,
    in_warmup: u64,
    last_end_ns: i64,
    edges: Edges,
    connecting: Delays,
    handshakes: Delays,
}

impl Latencies {
    /// `steps`: the steps of the rate, in an open loop.
    pub fn new(warmup_ns: i64, duration_ns: i64, steps: &[Step]) -> Latencies {
        Latencies {
            warmup_ns,
            duration_ns,
            all: Gathered::default(),
            steps: Steps::new(steps, warmup_ns),
            in_warmup: 0,
            last_end_ns: 0,
            edges: Edges::default(),
            connecting: Delays::default(),
            handshakes: Delays::default(),
        }
    }

    pub fn add(&mut self, row: &Row) {
        self.steps.add(row);
        if let Some(ns) = row.connect_ns {
            self.connecting.record(ns);
        }
        if let Some(ns) = row.tls_ns {
            self.handshakes.record(ns);
        }
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

    /// Writes the distribution of latencies from the intended start.
    pub fn write_percentiles(&self, path: &Path) -> Result<()> {
        hdr::write_percentiles(path, self.all.from_intended.histogram())
    }

    /// The reason if there is no result for the server. `tls_error`: the first TLS error.
    pub fn nothing(&self, tls_error: Option<&str>) -> Option<String> {
        if !self.all.from_intended.is_empty() {
            return None;
        }
        Some(match self.all.errors.is_empty() {
            true => "no request was to start after the warm-up: nothing was measured".to_string(),
            false => {
                let errors = listed(&self.all.errors);
                let why = tls_error.map_or(String::new(), |why| format!("; TLS: {why}"));
                format!("no request was answered well ({errors}{why})")
            }
        })
    }

    /// What the generator processes counted, and whether it agrees with the rows.
    pub fn in_flight(&self, counted: &[Counted]) -> Option<InFlight> {
        let mean_ns = self.all.from_intended.mean();
        let good = Good {
            ended: self.all.ended_within,
            intended: self.all.from_intended.len(),
            mean_ns: (!self.all.from_intended.is_empty()).then_some(mean_ns),
        };
        self.edges.in_flight(counted, &good)
    }

    /// `ended_early`: the run ended before its planned time.
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
            server: plan.server.clone(),
            load: plan.load,
            mode: meta.mode,
            offered_rps: meta.offered_rps,
            connections: plan.connections,
            seconds,
            steps: self.steps.summaries(end_ns),
            requests: self.all.from_intended.len() + failed,
            ok: self.all.from_intended.len(),
            in_warmup: self.in_warmup,
            latency_with_failures: WithFailures::of(&self.all.from_intended, failed),
            statuses: self.all.statuses,
            errors: self.all.errors,
            throughput_rps: self.all.ended_within as f64 / seconds,
            bytes_per_second: self.all.bytes as f64 / seconds,
            latency_from_intended: Percentiles::of(&self.all.from_intended),
            latency_from_start: Percentiles::of(&self.all.from_start),
            first_byte: Percentiles::of(&self.all.to_first_byte),
            connecting: Percentiles::of(&self.connecting),
            tls_handshake: Percentiles::of(&self.handshakes),
            tls: total.tls.clone(),
            tls_error: total.tls_error.clone(),
            redirects: total.redirects.clone(),
            location: total.location.clone(),
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
            taken: Vec::new(),
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

/// Latency from the intended start, over all requests. Failed requests count as slower than all others. `None`:
/// the percentile is a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WithFailures {
    pub p50_ns: Option<i64>,
    pub p90_ns: Option<i64>,
    pub p95_ns: Option<i64>,
    pub p99_ns: Option<i64>,
}

impl WithFailures {
    fn of(good: &Delays, failed: u64) -> Option<WithFailures> {
        let all = good.len() + failed;
        let at = |percent: u64| {
            // By the nearest rank, as everywhere.
            let rank = (all * percent).div_ceil(100);
            (rank <= good.len()).then(|| good.quantile(rank as f64 / good.len() as f64))
        };
        (failed > 0).then(|| WithFailures {
            p50_ns: at(50),
            p90_ns: at(90),
            p95_ns: at(95),
            p99_ns: at(99),
        })
    }

    fn text(&self) -> String {
        let all = [
            ("p50", self.p50_ns),
            ("p90", self.p90_ns),
            ("p95", self.p95_ns),
            ("p99", self.p99_ns),
        ];
        let known = all.map(|(name, ns)| {
            let value = ns.map_or("not known".to_string(), time);
            format!("{name} {value}")
        });
        known.join(", ")
    }
}

/// `latlab.run/1`.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub schema: &'static str,
    pub url: String,
    /// Its name if latlab has started it, otherwise its URL.
    pub server: String,
    /// Load relative to the server's capacity, if that is known.
    pub load: Option<f64>,
    pub mode: latlab_analysis::Mode,
    pub offered_rps: Option<f64>,
    pub connections: u32,
    /// Length of the measured time.
    pub seconds: f64,
    /// Each step of the rate, if there are several.
    pub steps: Option<Vec<StepSummary>>,
    /// Requests intended to start in the measured time.
    pub requests: u64,
    pub ok: u64,
    pub in_warmup: u64,
    pub errors: BTreeMap<&'static str, u64>,
    /// For the failure `status`: the number of each status.
    pub statuses: BTreeMap<u16, u64>,
    /// Good replies per second that ended in the measured time.
    pub throughput_rps: f64,
    pub bytes_per_second: f64,
    pub latency_from_intended: Option<Percentiles>,
    pub latency_from_start: Option<Percentiles>,
    pub first_byte: Option<Percentiles>,
    /// Over all connections, including those of the warm-up. Latency from the intended start includes it;
    /// latency from the start does not, because that counts from when the request was written.
    pub connecting: Option<Percentiles>,
    /// Duration of the TLS handshake after connecting.
    pub tls_handshake: Option<Percentiles>,
    /// Version and cipher suite of the first connection.
    pub tls: Option<String>,
    /// The first TLS error.
    pub tls_error: Option<String>,
    /// Good replies with a status of 3xx, by status. Redirects are not followed.
    pub redirects: BTreeMap<u16, u64>,
    /// Target of the first redirect.
    pub location: Option<String>,
    /// `None` if no request failed.
    pub latency_with_failures: Option<WithFailures>,
    pub lateness: Lateness,
    pub reply_lateness: Lateness,
    pub generator_cpu: f64,
    pub connections_opened: u64,
    /// Requests that were sent again on a new connection, because the server had closed the idle one.
    pub retried: u64,
    /// Those of them whose connection the server had reset.
    pub retried_after_reset: u64,
    pub unsolicited: u64,
    /// Requests in flight. `None` if no generator process reported them.
    pub in_flight: Option<InFlight>,
    /// For paced connections: the part that got SPECweb99's minimum rate.
    pub conforming: Option<f64>,
    pub interrupted: bool,
    /// How a server that latlab started ended, if it ended before the run.
    pub server_ended: Option<String>,
    /// Why these figures are not valid for the server.
    pub refused: Option<String>,
    /// Every request of a load of two classes.
    #[serde(skip)]
    pub taken: Vec<Taken>,
}

/// How long a request took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub kind: Kind,
    pub intended_ns: i64,
    /// From the intended start; `None` if it failed.
    pub latency_ns: Option<i64>,
}

impl Taken {
    pub fn of(row: &Row) -> Taken {
        let end_ns = row.end_ns.filter(|_| row.failure.is_none());
        Taken {
            kind: row.kind,
            intended_ns: row.intended_ns,
            latency_ns: end_ns.map(|end| end - row.intended_ns),
        }
    }
}
