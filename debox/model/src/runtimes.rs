//! Tells a runtime's own waits from those of the program that it runs.
//!
//! A worker without work sleeps on a futex, like a thread that waits for a lock; a garbage collector waits for its
//! helpers, and an interpreter's threads pass one lock to each other. The waiting function distinguishes them. The
//! rules are data: the files of `runtimes/`, whose format is described at the top of `debox/runtimes/libc.toml`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::frame::{Frame, Kind};
use crate::labels::glob::{any, one_of, Glob};

/// The rule files, in the order in which their rules are tried.
const BUILTIN: &[(&str, &str)] = &[
    ("go.toml", include_str!("../runtimes/go.toml")),
    ("tokio.toml", include_str!("../runtimes/tokio.toml")),
    ("libuv.toml", include_str!("../runtimes/libuv.toml")),
    ("v8.toml", include_str!("../runtimes/v8.toml")),
    ("cpython.toml", include_str!("../runtimes/cpython.toml")),
    ("jvm.toml", include_str!("../runtimes/jvm.toml")),
    ("mysql.toml", include_str!("../runtimes/mysql.toml")),
    ("libevent.toml", include_str!("../runtimes/libevent.toml")),
    ("nginx.toml", include_str!("../runtimes/nginx.toml")),
    ("libc.toml", include_str!("../runtimes/libc.toml")),
];

/// What a runtime's thread does while it waits. `debox/runtimes/libc.toml` says what each one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Parking,
    Scheduling,
    GarbageCollection,
    StartUp,
    Shutdown,
    HandedOver,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Parking => "parking",
            Phase::Scheduling => "scheduling",
            Phase::GarbageCollection => "garbage collection",
            Phase::StartUp => "start-up",
            Phase::Shutdown => "shutdown",
            Phase::HandedOver => "handed over",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// What a futex wait is for, by the functions that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// They do not say it.
    Unknown,
    /// A lock, whose own word the futex is.
    LockWord,
    /// A lock. The futex is another one: for example a thread's own, on which it sleeps in the lock's queue.
    Lock,
    /// Something that the request needs which the thread is working on.
    Request,
    /// Work: a runtime's threads wait there for nothing else.
    Work,
}

impl Purpose {
    pub fn is_lock(self) -> bool {
        matches!(self, Purpose::Lock | Purpose::LockWord)
    }

    /// Whether it may be work that another thread hands over.
    pub fn may_be_work(self) -> bool {
        matches!(self, Purpose::Unknown | Purpose::Work)
    }
}

/// What the rules look at in a call that slept.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    pub call: &'a str,
    /// The label of the longest sleep, as in reports.
    pub label: &'a str,
    /// The program's stack, innermost function first, as in reports.
    pub frames: &'a [Frame],
    /// The name of the task that ended the longest sleep.
    pub waker: Option<&'a str>,
    /// Whether that task is a thread that began in this turn of the loop.
    pub waker_is_new: bool,
}

/// One rule, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The runtime's name, from the rule file.
    #[serde(skip)]
    pub runtime: String,
    pub phase: Phase,
    /// What the thread waits for, in words for people.
    pub why: String,
    /// The longest that such waits may take in one turn of the loop, in microseconds.
    pub up_to_us: Option<u64>,
    #[serde(default)]
    site: Vec<Glob>,
    #[serde(default)]
    within: Vec<Glob>,
    #[serde(default)]
    without: Vec<Glob>,
    #[serde(default)]
    calls: Vec<Glob>,
    #[serde(default)]
    labels: Vec<Glob>,
    #[serde(default)]
    waker: Vec<Glob>,
    #[serde(default)]
    waker_is_new: bool,
    /// A stack that this rule explains, innermost frame first; a test checks it.
    #[serde(default)]
    #[cfg_attr(not(test), allow(dead_code))]
    example: Vec<String>,
    /// The call of the example, where it is not `futex`.
    #[cfg_attr(not(test), allow(dead_code))]
    example_call: Option<String>,
    #[cfg_attr(not(test), allow(dead_code))]
    example_waker: Option<String>,
}

/// A set of parsed rules.
#[derive(Debug, Clone, Default)]
pub struct Runtimes {
    /// Functions that carry out a wait that one of their callers decided on.
    primitives: Vec<Glob>,
    /// Of these, the functions that threads call mainly to wait for work.
    parks_in: Vec<Glob>,
    /// Functions that threads call to get a lock, and for nothing else. The word that they sleep on is the lock's.
    locks: Vec<Glob>,
    /// The same, where the word that they sleep on is the thread's or one that is made for the wait.
    locks_elsewhere: Vec<Glob>,
    /// Functions that work on a request.
    at_work: Vec<Glob>,
    /// In the order in which they are tried.
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    runtime: String,
    #[serde(default)]
    primitives: Vec<Glob>,
    #[serde(default)]
    parks_in: Vec<Glob>,
    #[serde(default)]
    locks: Vec<Glob>,
    #[serde(default)]
    locks_elsewhere: Vec<Glob>,
    #[serde(default)]
    at_work: Vec<Glob>,
    #[serde(default)]
    rule: Vec<toml::Table>,
}

impl Runtimes {
    /// The rules that come with DeBox.
    pub fn builtin() -> &'static Runtimes {
        static RUNTIMES: OnceLock<Runtimes> = OnceLock::new();
        RUNTIMES.get_or_init(|| {
            let mut runtimes = Runtimes::default();
            for (name, text) in BUILTIN {
                let added = runtimes.add(name, text);
                added.expect("the rules of runtimes/ are tested when DeBox is built");
            }
            runtimes
        })
    }

    /// Adds a file's rules, to be tried after the existing ones.
    pub fn add(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let file: File =
            toml::from_str(text).map_err(|error| anyhow!("{name} is not a rule file: {error}"))?;
        if file.runtime.trim().is_empty() {
            bail!("{name}: the runtime has no name");
        }
        self.primitives.extend(file.primitives);
        self.parks_in.extend(file.parks_in);
        self.locks.extend(file.locks);
        self.locks_elsewhere.extend(file.locks_elsewhere);
        self.at_work.extend(file.at_work);
        for (index, table) in file.rule.into_iter().enumerate() {
            let place = format!("{name}: rule {}", index + 1);
            let rule: Rule = table.try_into().map_err(|error: toml::de::Error| {
                // Line numbers would mislead: here they count from the start of the rule.
                anyhow!("{place}: {}", error.message())
            })?;
            rule.check().map_err(|error| anyhow!("{place}: {error}"))?;
            self.rules.push(Rule {
                runtime: file.runtime.clone(),
                ..rule
            });
        }
        Ok(())
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule that matches a wait, as an index into [`Runtimes::rules`].
    pub fn find(&self, wait: &Wait<'_>) -> Option<usize> {
        let names = wait.frames.iter().map(|frame| frame.function.as_str());
        let names: Vec<&str> = names.collect();
        let is_primitive = |name: &&str| any(&self.primitives, &[name]);
        let site = names.iter().position(|name| !is_primitive(name))?;
        let outwards = &names[site..];
        let frames = wait.frames[site..].iter();
        let nameless = frames.take_while(|frame| is_inlined_without_module(frame));
        let sites = &outwards[..(nameless.count() + 1).min(outwards.len())];
        let matches = |rule: &Rule| {
            one_of(&rule.calls, &[wait.call])
                && one_of(&rule.labels, &[wait.label])
                && one_of(&rule.site, sites)
                && one_of(&rule.within, outwards)
                && !any(&rule.without, outwards)
                && (rule.waker.is_empty() || wait.waker.is_some_and(|by| any(&rule.waker, &[by])))
                && (!rule.waker_is_new || wait.waker_is_new)
        };
        self.rules.iter().position(matches)
    }

    /// Whether a stack has named functions other than those that carry out waits.
    pub fn have_names(&self, frames: &[Frame]) -> bool {
        let names = frames.iter().map(|frame| frame.function.as_str());
        let named = names.filter(|name| {
            let is_file = name.contains(".so") || name.starts_with("0x") || name.starts_with('(');
            !is_file && !any(&self.primitives, &[name])
        });
        let named: Vec<&str> = named.collect();
        // Without names, each frame is the program's file with a different offset.
        named.len() == 1 || named.iter().any(|name| *name != named[0])
    }

    /// What a futex wait is for, if a function that led to it says it.
    pub fn purpose(&self, frames: &[Frame]) -> Purpose {
        let is_in = |functions: &[Glob]| {
            let mut names = frames.iter().map(|frame| frame.function.as_str());
            names.any(|name| any(functions, &[name]))
        };
        if is_in(&self.locks_elsewhere) {
            Purpose::Lock
        } else if is_in(&self.locks) {
            Purpose::LockWord
        } else if is_in(&self.at_work) {
            Purpose::Request
        } else if self.are_parking(frames) {
            Purpose::Work
        } else {
            Purpose::Unknown
        }
    }

    /// Whether the futex wait is in a function in which a runtime's threads wait for work. Stacks may end early:
    /// without detail `callsites` they are unwound no further than the wait's own functions.
    pub fn are_parking(&self, frames: &[Frame]) -> bool {
        let ends_within_wait = frames
            .iter()
            .all(|frame| any(&self.primitives, &[&frame.function]));
        if ends_within_wait {
            let outermost = frames.last();
            return outermost.is_some_and(|frame| any(&self.parks_in, &[&frame.function]));
        }
        let found = self.find(&Wait {
            call: "futex",
            label: "futex",
            frames,
            waker: None,
            waker_is_new: false,
        });
        found.is_some_and(|index| self.rules[index].phase == Phase::Parking)
    }
}

impl Rule {
    fn check(&self) -> anyhow::Result<()> {
        if self.why.trim().is_empty() {
            bail!("it does not say why");
        }
        if self.site.is_empty() && self.within.is_empty() {
            bail!("it would match every stack: give `site` or `within`");
        }
        if self.up_to_us == Some(0) {
            bail!("up_to_us is 0: then there is no need for a rule");
        }
        Ok(())
    }
}

/// Whether a frame's function was inlined and has lost the name of its module or class, as with debug information
/// that has only lines. Then the function that it was inlined into determines whose it is.
fn is_inlined_without_module(frame: &Frame) -> bool {
    let own = frame.function.split('<').next().unwrap_or_default();
    let has_module = own.is_empty() || own.contains("::") || own.contains('.');
    frame.kind == Kind::Inlined && !has_module
}
