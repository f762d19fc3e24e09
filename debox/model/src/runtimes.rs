//! Which waits are those of a runtime itself, and not of the program that it runs.
//!
//! A worker without work sleeps on a futex, as a thread does that wants a lock; a collector of garbage waits for its
//! helpers, and an interpreter's threads hand one lock to each other. Which function waits tells them apart. The
//! rules are data: the files of `runtimes/`, whose format is described at the top of `debox/runtimes/libc.toml`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::labels::glob::{any, one_of, Glob};

/// Their rules are tried in this order.
const BUILTIN: &[(&str, &str)] = &[
    ("go.toml", include_str!("../../runtimes/go.toml")),
    ("tokio.toml", include_str!("../../runtimes/tokio.toml")),
    ("libuv.toml", include_str!("../../runtimes/libuv.toml")),
    ("v8.toml", include_str!("../../runtimes/v8.toml")),
    ("cpython.toml", include_str!("../../runtimes/cpython.toml")),
    ("jvm.toml", include_str!("../../runtimes/jvm.toml")),
    (
        "libevent.toml",
        include_str!("../../runtimes/libevent.toml"),
    ),
    ("nginx.toml", include_str!("../../runtimes/nginx.toml")),
    ("libc.toml", include_str!("../../runtimes/libc.toml")),
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

/// A call that slept, as the rules look at it.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    pub call: &'a str,
    /// Of the longest sleep, as reports have it.
    pub label: &'a str,
    /// The program's stack, innermost function first, as reports have it.
    pub frames: &'a [&'a str],
    /// The name of the task that ended the longest sleep.
    pub waker: Option<&'a str>,
    /// That task is a thread that began in this turn of the loop.
    pub waker_is_new: bool,
}

/// One rule, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The file's.
    #[serde(skip)]
    pub runtime: String,
    pub phase: Phase,
    /// What the thread waits for, for people.
    pub why: String,
    /// So long such waits may take in one turn of the loop, in microseconds.
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
    /// A stack that this rule explains, innermost frame first; a test holds the rule to it.
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
    /// Functions that carry out a wait that another one decided on.
    primitives: Vec<Glob>,
    /// Of these, functions that threads call to wait for work, above all.
    parks_in: Vec<Glob>,
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

    /// Takes in a file's rules, to be tried after those that are there.
    pub fn add(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let file: File =
            toml::from_str(text).map_err(|error| anyhow!("{name} is not a rule file: {error}"))?;
        if file.runtime.trim().is_empty() {
            bail!("{name}: the runtime has no name");
        }
        self.primitives.extend(file.primitives);
        self.parks_in.extend(file.parks_in);
        for (index, table) in file.rule.into_iter().enumerate() {
            let place = format!("{name}: rule {}", index + 1);
            let rule: Rule = table.try_into().map_err(|error: toml::de::Error| {
                // Lines count from the rule's own start here and would mislead.
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

    /// The first rule that knows a wait, as an index into [`Runtimes::rules`].
    pub fn find(&self, wait: &Wait<'_>) -> Option<usize> {
        let names: Vec<&str> = wait.frames.iter().map(|frame| function(frame)).collect();
        let is_primitive = |name: &&str| any(&self.primitives, &[name]);
        let site = names.iter().position(|name| !is_primitive(name))?;
        let outwards = &names[site..];
        let frames = wait.frames[site..].iter().zip(outwards);
        let nameless = frames.take_while(|(frame, name)| is_inlined_without_module(frame, name));
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

    /// Whether some function of a stack has a name, beside those that carry out waits.
    pub fn have_names(&self, frames: &[&str]) -> bool {
        let names = frames.iter().map(|frame| function(frame));
        let named = names.filter(|name| {
            let is_file = name.contains(".so") || name.starts_with("0x") || name.starts_with('(');
            !is_file && !any(&self.primitives, &[name])
        });
        let named: Vec<&str> = named.collect();
        // Without names, each frame is the program's file and another offset.
        named.len() == 1 || named.iter().any(|name| *name != named[0])
    }

    /// Whether a futex was waited on in a function in which a runtime's threads wait for work. Stacks may end early: without
    /// detail `callsites` they are followed no further than the wait's own functions.
    pub fn are_parking(&self, frames: &[&str]) -> bool {
        let ends_within_wait = frames
            .iter()
            .all(|frame| any(&self.primitives, &[function(frame)]));
        if ends_within_wait {
            let outermost = frames.last().map(|frame| function(frame));
            return outermost.is_some_and(|name| any(&self.parks_in, &[name]));
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

/// Whether a frame is of a function that was built into another one and has lost the name of its module or class, as
/// where debug information has lines alone. Then the function that it was built into says whose it is.
fn is_inlined_without_module(frame: &str, name: &str) -> bool {
    let own = name.split('<').next().unwrap_or_default();
    let has_module = own.is_empty() || own.contains("::") || own.contains('.');
    frame.contains(" (inlined)") && !has_module
}

/// The function of a frame, without an offset and a place; of code without a name, its file.
fn function(frame: &str) -> &str {
    // The first character is kept in any case: a name may begin with what ends one.
    let ends = ["+0x", " ("].map(|end| {
        let found = frame.match_indices(end).find(|(index, _)| *index > 0);
        found.map_or(frame.len(), |(index, _)| index)
    });
    &frame[..ends[0].min(ends[1])]
}
