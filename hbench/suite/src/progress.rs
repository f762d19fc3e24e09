// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run shows while it goes on: on a terminal the latest value, elsewhere a line for each round.

use std::time::{Duration, Instant};

use hbench::runner::Told;
use hbench_results::words::time;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kit_console::{error_is_read, printable, say};

/// Shorter runs show nothing where there is no terminal.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
    rounds: u32,
}

impl Progress {
    pub fn new(samples: usize, rounds: u32) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(samples as u64), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{prefix}{pos} of {len}, {eta} left: {wide_msg}")
        {
            bar.set_style(style);
        }
        if error_is_read() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Progress {
            bar,
            begun: Instant::now(),
            rounds,
        }
    }

    /// `told`: of the sample that was taken; `None`: it was not tried again.
    pub fn sample(&self, name: &str, told: Option<&Told>) {
        self.bar.inc(1);
        let words = match told {
            Some(Told::Measured(ns)) => format!("{name} {}", time(*ns)),
            Some(Told::LeftOut(reason)) => format!("{name}: {reason}"),
            _ => return,
        };
        self.bar.set_message(printable(&words).into_owned());
    }

    pub fn round(&self, round: u32) {
        let done = round + 1;
        self.bar.set_prefix(format!(
            "round {} of {}, ",
            (done + 1).min(self.rounds),
            self.rounds
        ));
        if !error_is_read() && (self.begun.elapsed() > PATIENCE) {
            let elapsed = time(self.begun.elapsed().as_nanos() as f64);
            say!(
                "hbench: round {done} of {} done after {elapsed}",
                self.rounds
            );
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
