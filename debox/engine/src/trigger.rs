//! Triggers: a predicate over the record of a call, evaluated when the call ends and before the program
//! continues, and the actions to take if it holds.
//!
//! The probes evaluate the predicates (debox/probe/trigger.h). The engine tells them once for each
//! place of sleep which tests of labels hold there, after a call has slept there. Calls that end before
//! that answer arrives, and whose predicate depends on it, are decided by the engine: late, after the
//! program has continued.

mod engine;
mod fired;
mod listed;

use std::fmt;
use std::str::FromStr;

use anyhow::{anyhow, bail, ensure, Context, Result};
use nix::sys::signal::Signal;

use crate::predicate::Predicate;

pub(crate) use engine::{configure, Engine};
pub use fired::Fired;
pub(crate) use listed::{Counts, Listed};

/// The most triggers of one session.
pub const TRIGGERS_MAX: usize = 8;

/// How often a trigger fires in a second by default.
pub const LIMIT_DEFAULT: u32 = 10;

/// The largest limit: the probes count a second's firings in 24 bits.
const LIMIT_MAX: u32 = 1_000_000;

/// A predicate, and the actions to take if it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    pub predicate: Predicate,
    /// A signal for the thread that made the call.
    pub signal: Option<i32>,
    /// The most firings in a second.
    pub limit: Option<u32>,
}

impl Trigger {
    /// A trigger that captures the stacks, with the default limit.
    pub fn new(predicate: Predicate) -> Trigger {
        Trigger {
            predicate,
            signal: None,
            limit: Some(LIMIT_DEFAULT),
        }
    }

    /// The signal's name, such as `USR1`.
    pub fn signal_name(&self) -> Option<String> {
        self.signal.map(signal_name)
    }
}

impl FromStr for Trigger {
    type Err = anyhow::Error;

    /// `PREDICATE [=> ACTION, ...]`, where an action is `signal NAME`, or `limit N/s` or `limit none`.
    fn from_str(text: &str) -> Result<Trigger> {
        let (predicate, actions) = match split(text) {
            Some((predicate, actions)) => (predicate, Some(actions)),
            None => (text, None),
        };
        let mut trigger = Trigger::new(Predicate::parse(predicate.trim())?);
        for action in actions.into_iter().flat_map(|actions| actions.split(',')) {
            let words: Vec<&str> = action.split_whitespace().collect();
            match words[..] {
                ["signal", name] => trigger.signal = Some(parse_signal(name)?),
                ["limit", "none"] => trigger.limit = None,
                ["limit", rate] => trigger.limit = Some(parse_limit(rate)?),
                _ => bail!(
                    "`{}` is not an action: after `=>` come `signal NAME`, `limit N/s` or `limit \
                     none`, with commas between them",
                    action.trim()
                ),
            }
        }
        Ok(trigger)
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} => ", self.predicate)?;
        if let Some(signal) = self.signal_name() {
            write!(to, "signal {signal}, ")?;
        }
        match self.limit {
            Some(limit) => write!(to, "limit {limit}/s"),
            None => write!(to, "limit none"),
        }
    }
}

/// Where the actions begin: at the first `=>` that is not in quotes.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '=' if !is_quoted && text[at..].starts_with("=>") => {
                return Some((&text[..at], &text[at + 2..]));
            }
            _ => {}
        }
    }
    None
}

fn parse_limit(rate: &str) -> Result<u32> {
    let number = rate.strip_suffix("/s").and_then(|n| n.parse::<u32>().ok());
    let number = number.with_context(|| format!("`{rate}` is not a limit: write it as in 10/s"))?;
    ensure!(
        (1..=LIMIT_MAX).contains(&number),
        "a limit is from 1/s to {LIMIT_MAX}/s, or `none`"
    );
    Ok(number)
}

fn parse_signal(name: &str) -> Result<i32> {
    let real_time = |offset: &str, base: i32| -> Option<i32> {
        let offset: i32 = match offset {
            "" => 0,
            offset => offset.parse().ok()?,
        };
        let number = base + offset;
        (libc::SIGRTMIN()..=libc::SIGRTMAX())
            .contains(&number)
            .then_some(number)
    };
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = if let Some(offset) = short.strip_prefix("RTMIN") {
        real_time(offset, libc::SIGRTMIN())
    } else if let Some(offset) = short.strip_prefix("RTMAX") {
        real_time(offset, libc::SIGRTMAX())
    } else if let Ok(number) = short.parse::<i32>() {
        (1..=libc::SIGRTMAX()).contains(&number).then_some(number)
    } else {
        let known = Signal::from_str(&format!("SIG{short}")).ok();
        known.map(|signal| signal as i32)
    };
    number.ok_or_else(|| {
        anyhow!(
            "`{name}` is not a signal: signals have names as in signal(7), such as USR1 or RTMIN+3"
        )
    })
}

fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().trim_start_matches("SIG").to_string(),
        Err(_) if number >= libc::SIGRTMIN() => format!("RTMIN+{}", number - libc::SIGRTMIN()),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        match text.parse::<Trigger>() {
            Ok(trigger) => panic!("{text} was read as {trigger}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn actions_come_after_the_predicate() {
        let plain: Trigger = "blocked >= 1ms".parse().expect("a trigger");
        assert_eq!((plain.signal, plain.limit), (None, Some(LIMIT_DEFAULT)));
        let full: Trigger = "comm == \"a=>b\" && blocked >1ms=>signal sigusr1, limit 500/s"
            .parse()
            .expect("a trigger");
        assert_eq!((full.signal, full.limit), (Some(libc::SIGUSR1), Some(500)));
        assert_eq!(
            full.to_string(),
            "comm == \"a=>b\" && blocked > 1ms => signal USR1, limit 500/s"
        );
        assert_eq!(full.to_string().parse::<Trigger>().ok(), Some(full));
        let endless: Trigger = "restarted => limit none, signal RTMIN+3"
            .parse()
            .expect("one");
        assert_eq!(endless.limit, None);
        assert_eq!(endless.signal_name().as_deref(), Some("RTMIN+3"));
    }

    #[test]
    fn wrong_actions_are_named() {
        assert!(error("wall > 1s => sing USR1").contains("`sing USR1` is not an action"));
        assert!(error("wall > 1s => signal USR9").contains("`USR9` is not a signal"));
        assert!(error("wall > 1s => limit 10").contains("as in 10/s"));
        assert!(error("wall > 1s => limit 0/s").contains("from 1/s"));
        assert!(error("wall > 1s =>").contains("is not an action"));
        assert!(error("wal > 1s => signal USR1").contains("Did you mean `wall`?"));
        assert!(error("wall > 1s => signal RTMIN+99").contains("not a signal"));
    }
}
