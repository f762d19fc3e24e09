//! What takes longer than two seconds shows how far it is, if somebody is there to see it.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latlab::units::count;

const PATIENCE: Duration = Duration::from_secs(2);

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
        Progress::new(duration.as_secs(), "{pos} s of {len} s{msg}")
    }

    pub fn set(&self, position: u64, message: &str) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE && io::stderr().is_terminal() {
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
