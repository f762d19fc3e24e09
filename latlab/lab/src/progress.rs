//! Shows the progress of what takes longer than two seconds, on a terminal.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kit_console::{error_is_read, printable};
use latlab::load::Now;
use latlab::units::{count, time};

const PATIENCE: Duration = Duration::from_secs(2);

/// Names the next of a procedure's runs; empty if there is only one.
static STEP: Mutex<String> = Mutex::new(String::new());

/// Names the next runs, such as "load 0.5, run 3 of 9".
pub fn step(what: &str) {
    *STEP.lock().unwrap_or_else(PoisonError::into_inner) = format!("{}: ", printable(what));
}

pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    fn new(length: u64, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress {
            bar,
            begun: Instant::now(),
        }
    }

    pub fn bytes(length: u64) -> Progress {
        Progress::new(length, "{bytes} of {total_bytes}, {eta} left {msg}")
    }

    pub fn time(duration: Duration) -> Progress {
        let progress = Progress::new(duration.as_secs(), "{prefix}{pos} s of {len} s{wide_msg}");
        let step = STEP.lock().unwrap_or_else(PoisonError::into_inner);
        progress.bar.set_prefix(step.clone());
        progress
    }

    pub fn set(&self, position: u64, message: &str) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE && error_is_read() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(position);
        if !message.is_empty() {
            self.bar.set_message(message.to_string());
        }
    }

    pub fn run(&self, now: Now) {
        self.set(self.begun.elapsed().as_secs(), &describe(now));
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The server's current performance comes first, because a narrow terminal cuts off the end.
fn describe(now: Now) -> String {
    let mut words = String::new();
    if let Some(rps) = now.rps {
        words = format!(": now {} requests/s", count(rps.round() as u64));
        words += &match now.latency {
            Some(latency) => format!(
                ", p50 {}, p99 {}",
                time(latency.p50_ns),
                time(latency.p99_ns)
            ),
            None => ", no good reply".to_string(),
        };
    }
    let (requests, failures) = (count(now.requests), count(now.failures));
    let separator = if words.is_empty() { ":" } else { ";" };
    format!("{words}{separator} {requests} requests, {failures} failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use latlab::load::Latency;

    #[test]
    fn progress_has_the_rate_and_the_latency_of_now() {
        let mut now = Now {
            requests: 12_345,
            failures: 2,
            rps: Some(1_999.6),
            latency: Some(Latency {
                p50_ns: 1_200_000,
                p99_ns: 30_500_000,
            }),
        };
        assert_eq!(
            describe(now),
            ": now 2,000 requests/s, p50 1.20 ms, p99 30.5 ms; 12,345 requests, 2 failed"
        );
        now.latency = None;
        now.rps = Some(0.0);
        assert_eq!(
            describe(now),
            ": now 0 requests/s, no good reply; 12,345 requests, 2 failed"
        );
        assert_eq!(describe(Now::default()), ": 0 requests, 0 failed");
    }
}
