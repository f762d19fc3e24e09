//! From the kernel stack of a sleep to its site, its label and its class.
//!
//! The rules are data: the files of `labels/`, whose format is described at the top of
//! `debox/labels/primitives.toml`. This module only reads them ([`parse`]) and applies them.

mod class;
pub(crate) mod glob;
mod parse;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use class::Class;
use glob::{one_of, Glob};
use parse::{ArgTest, Rule};

/// The rule files, in the order in which their rules are tried.
///
/// A wait for memory inside a file system is a wait for memory, and a lock held by a function
/// that mostly does I/O is a lock: so memory and locks come before disks. The rules that only
/// know which primitive was slept on come last.
const BUILTIN: &[(&str, &str)] = &[
    ("primitives.toml", include_str!("../labels/primitives.toml")),
    ("memory.toml", include_str!("../labels/memory.toml")),
    ("lock.toml", include_str!("../labels/lock.toml")),
    ("block.toml", include_str!("../labels/block.toml")),
    ("disk.toml", include_str!("../labels/disk.toml")),
    ("network.toml", include_str!("../labels/network.toml")),
    ("process.toml", include_str!("../labels/process.toml")),
    ("idle.toml", include_str!("../labels/idle.toml")),
    ("cpu.toml", include_str!("../labels/cpu.toml")),
    ("fallback.toml", include_str!("../labels/fallback.toml")),
];

/// What one kernel stack means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Which of the frames is the site; `None` when there are no frames.
    pub site_index: Option<usize>,
    pub label: String,
    pub class: Class,
}

/// The label of a sleep without a stack.
pub const UNKNOWN: &str = "unknown";

/// The placeholder for the site's name in a rule's label.
pub const SITE: &str = "{site}";

/// Like [`Explained`], but borrowed from the rules: the label is not formatted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    pub site_index: usize,
    /// The rule's label, which may contain [`SITE`]; `None`: no rule matched, and the label is the
    /// site's name.
    pub label: Option<&'a str>,
    pub class: Class,
}

impl<'a> Found<'a> {
    /// The label, unless it has to be formatted. `names`: those that were explained.
    pub fn label_in(&self, names: &[&'a str]) -> Option<&'a str> {
        match self.label {
            None | Some(SITE) => names.get(self.site_index).copied(),
            Some(label) if label.contains(SITE) => None,
            Some(label) => Some(label),
        }
    }
}

/// A set of parsed rules.
#[derive(Debug, Clone)]
pub struct Labels {
    /// Functions that carry out a wait that one of their callers decided on.
    primitives: Vec<Glob>,
    /// In the order in which they are tried.
    rules: Vec<Rule>,
}

impl Labels {
    /// The rules that come with DeBox.
    pub fn builtin() -> &'static Labels {
        static LABELS: OnceLock<Labels> = OnceLock::new();
        LABELS.get_or_init(|| {
            Labels::parse(BUILTIN).expect("the rules of labels/ are tested when DeBox is built")
        })
    }

    /// Reads rule files, given as pairs of name and text. Their rules are tried in the order of
    /// the files, and in each file from top to bottom.
    pub fn parse(files: &[(&str, &str)]) -> anyhow::Result<Labels> {
        let mut labels = Labels {
            primitives: Vec::new(),
            rules: Vec::new(),
        };
        for (name, text) in files {
            let (primitives, rules) = parse::file(name, text)?;
            labels.primitives.extend(primitives);
            labels.rules.extend(rules);
        }
        Ok(labels)
    }

    /// Explains a sleep.
    ///
    /// * `syscall`: the name of the call that slept, such as `read`, or `(user)`.
    /// * `args`: the first words of its arguments, where known.
    /// * `frames`: the kernel stack as function names, innermost first. A name may carry what a
    ///   compiler appended (`.constprop.0`) or an offset; both are ignored.
    pub fn explain(&self, syscall: &str, args: Option<[u64; 3]>, frames: &[&str]) -> Explained {
        let names: Vec<&str> = frames.iter().map(|frame| function(frame)).collect();
        let Some(found) = self.find(syscall, args, &names) else {
            return Explained {
                site_index: None,
                label: UNKNOWN.to_string(),
                class: Class::Other,
            };
        };
        let formatted = || {
            let label = found.label.unwrap_or(SITE);
            label.replace(SITE, names[found.site_index])
        };
        let label = found.label_in(&names).map(String::from);
        Explained {
            site_index: Some(found.site_index),
            label: label.unwrap_or_else(formatted),
            class: found.class,
        }
    }

    /// Like [`Labels::explain`], without allocating, for functions as [`function`] returns them;
    /// `None` if there are none.
    pub fn find(&self, syscall: &str, args: Option<[u64; 3]>, names: &[&str]) -> Option<Found<'_>> {
        let site_index = self.site_index(names)?;
        let sleep = Sleep {
            syscall,
            args,
            names,
            site_index,
        };
        let rule = self.rule(&sleep).map(|index| &self.rules[index]);
        Some(Found {
            site_index,
            label: rule.map(|rule| rule.label.as_str()),
            class: rule.map_or(Class::Other, |rule| rule.class),
        })
    }

    /// The labels that rules give, without those made of a function's name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let labels = self.rules.iter().map(|rule| rule.label.as_str());
        labels.filter(|label| !label.contains(SITE))
    }

    /// The bits of a call's arguments that some rule looks at.
    pub fn arg_masks(&self, syscall: &str) -> [u64; 3] {
        let mut masks = [0; 3];
        let of_call = |rule: &&Rule| rule.calls.iter().any(|glob| glob.matches(syscall));
        for test in self
            .rules
            .iter()
            .filter(of_call)
            .filter_map(|rule| rule.args.as_ref())
        {
            masks[test.index] |= test.mask;
        }
        masks
    }

    /// The first rule that matches a sleep, as an index into `self.rules`.
    fn rule(&self, sleep: &Sleep<'_>) -> Option<usize> {
        let first = |primitives| {
            self.rules
                .iter()
                .position(|rule| rule.matches(sleep, primitives))
        };
        first(Primitives::Seen).or_else(|| {
            // The kernel leaves its scheduler and lock functions out of the stacks of tasks that
            // are not running. Then it is unknown which primitive the site slept on, and a rule
            // that knows the site is better than none.
            let hidden = sleep.below().is_empty();
            hidden.then(|| first(Primitives::Hidden)).flatten()
        })
    }

    /// The first frame that is not a primitive. The site of a stack of nothing but primitives is
    /// its outermost frame, which is more useful to a reader than no site.
    fn site_index(&self, names: &[&str]) -> Option<usize> {
        names
            .iter()
            .position(|name| !self.primitives.iter().any(|glob| glob.matches(name)))
            .or(names.len().checked_sub(1))
    }
}

/// The function of a frame: without an offset, a module, or a compiler's suffix.
pub fn function(frame: &str) -> &str {
    let frame = frame.trim();
    // The first character is always kept: a name may begin with a character that otherwise ends
    // names.
    let end = frame
        .char_indices()
        .skip(1)
        .find(|(_, c)| matches!(c, '.' | '+' | ' ' | '['));
    end.map_or(frame, |(index, _)| &frame[..index])
}

/// What the rules look at in a sleep.
struct Sleep<'a> {
    syscall: &'a str,
    args: Option<[u64; 3]>,
    /// Functions, innermost first.
    names: &'a [&'a str],
    site_index: usize,
}

impl<'a> Sleep<'a> {
    fn site(&self) -> &'a str {
        self.names[self.site_index]
    }

    /// The primitives that the site called to wait.
    fn below(&self) -> &'a [&'a str] {
        &self.names[..self.site_index]
    }

    /// The site and everything that led to it.
    fn outwards(&self) -> &'a [&'a str] {
        &self.names[self.site_index..]
    }
}

/// Whether the primitives of a sleep are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Primitives {
    Seen,
    Hidden,
}

impl Rule {
    fn matches(&self, sleep: &Sleep<'_>, primitives: Primitives) -> bool {
        let within_all = |glob: &Glob| {
            sleep
                .outwards()
                .iter()
                .any(|function| glob.matches(function))
        };
        one_of(&self.site, &[sleep.site()])
            && one_of(&self.calls, &[sleep.syscall])
            && self.wait_matches(sleep, primitives)
            && one_of(&self.within, sleep.outwards())
            && self.within_all.iter().all(within_all)
            && self
                .args
                .as_ref()
                .is_none_or(|test| test.matches(sleep.args))
    }

    fn wait_matches(&self, sleep: &Sleep<'_>, primitives: Primitives) -> bool {
        match primitives {
            Primitives::Seen => one_of(&self.wait, sleep.below()),
            // A rule that tests only primitives says nothing about a stack without them.
            Primitives::Hidden => !self.site.is_empty() || !self.within.is_empty(),
        }
    }
}

impl ArgTest {
    /// Unknown arguments pass no test: a rule must not guess.
    fn matches(&self, args: Option<[u64; 3]>) -> bool {
        args.is_some_and(|args| self.values.contains(&(args[self.index] & self.mask)))
    }
}
