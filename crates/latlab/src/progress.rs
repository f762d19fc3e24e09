//! What takes longer than two seconds shows how far it is, if somebody is there to see it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use debox_console::{error_is_read, printable};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latlab::units::count;

const PATIENCE: Duration = Duration::from_secs(2);

/// Which of a procedure's runs comes next; empty: there is but one.
static STEP: Mutex<String> = Mutex::new(String::new());

/// Says what the next runs are, as in "load 0.5, run 3 of 9".
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
        let progress = Progress::new(duration.as_secs(), "{prefix}{pos} s of {len} s{msg}");
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

    pub fn requests(&self, requests: u64, failures: u64) {
        let message = format!(": {} requests, {} failed", count(requests), count(failures));
        self.set(self.begun.elapsed().as_secs(), &message);
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
