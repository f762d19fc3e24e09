//! Chooses the kernel functions to probe: groups, names and wildcards, without those that must not
//! be probed.

use std::collections::{BTreeMap, HashSet};

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use super::kernel_functions::{Function, KernelFunctions};

/// The rules: `groups.toml`.
#[derive(Deserialize)]
struct Rules {
    default: Vec<String>,
    group: Vec<Group>,
    deny: Vec<Deny>,
}

/// Functions that belong together.
#[derive(Deserialize)]
struct Group {
    name: String,
    about: String,
    functions: Vec<String>,
}

/// Functions that are never probed.
#[derive(Deserialize)]
struct Deny {
    why: String,
    functions: Vec<String>,
}

/// The chosen functions.
pub(super) struct Choice {
    pub functions: Vec<Function>,
    /// Functions that were requested but are not probed, by reason.
    pub denied: BTreeMap<String, Vec<String>>,
}

const NOT_TRACEABLE: &str = "the kernel does not let its entry be probed";
const BLACKLISTED: &str = "on the kernel's list of functions that must not be probed";
pub(super) const SAME_NAME: &str = "several functions have this name";

fn rules() -> Rules {
    toml::from_str(include_str!("groups.toml")).expect("the rules are checked by a test")
}

/// The groups that `--trace` accepts, each with its description.
pub fn groups() -> Vec<(String, String)> {
    let groups = rules().group.into_iter();
    groups.map(|group| (group.name, group.about)).collect()
}

/// A function's name without what a compiler appends to it, such as `.isra.0`.
fn source_name(name: &str) -> &str {
    name.split_once('.').map_or(name, |(name, _)| name)
}

/// Whether a name matches a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(tail)
}

/// Patterns to include and to exclude.
struct Selection {
    /// The user's items with their patterns, so that an item without effect can be named.
    wanted: Vec<(String, Vec<String>)>,
    unwanted: Vec<String>,
}

impl Selection {
    /// `list` has groups, names and patterns; `!` before an item excludes it.
    fn new(rules: &Rules, list: &[String]) -> Selection {
        let list = if list.is_empty() {
            &rules.default
        } else {
            list
        };
        let mut selection = Selection {
            wanted: Vec::new(),
            unwanted: Vec::new(),
        };
        for item in list {
            let (item, is_unwanted) = match item.strip_prefix('!') {
                Some(item) => (item, true),
                None => (item.as_str(), false),
            };
            let patterns = match rules.group.iter().find(|group| group.name == item) {
                Some(group) => group.functions.clone(),
                None => vec![item.to_string()],
            };
            if is_unwanted {
                selection.unwanted.extend(patterns);
            } else {
                selection.wanted.push((item.to_string(), patterns));
            }
        }
        selection
    }

    fn leaves_out(&self, name: &str) -> bool {
        self.unwanted.iter().any(|pattern| fits(pattern, name))
    }
}

/// Whether the patterns of a group include a name.
fn takes_in(patterns: &[String], name: &str) -> bool {
    let mut is_in = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(pattern) if fits(pattern, name) => return false,
            Some(_) => {}
            None => is_in = is_in || fits(pattern, name),
        }
    }
    is_in
}

/// Checks that every item of the list matches something, for methods that cannot choose functions.
pub(super) fn check(list: &[String], kernel: &KernelFunctions) -> Result<()> {
    let rules = rules();
    for (item, patterns) in &Selection::new(&rules, list).wanted {
        let is_group = rules.group.iter().any(|group| group.name == *item);
        let mut names = kernel
            .functions
            .iter()
            .map(|function| source_name(&function.name));
        if !is_group && !names.any(|name| takes_in(patterns, name)) {
            bail!(unknown(&rules, item));
        }
    }
    Ok(())
}

fn unknown(rules: &Rules, item: &str) -> String {
    let groups: Vec<&str> = rules
        .group
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    format!(
        "no function of this kernel fits `{item}` (the groups are {})",
        groups.join(", ")
    )
}

/// Chooses among the kernel's functions, in the order of the list.
///
/// # Errors
///
/// An item of the list matches no function of this kernel.
pub(super) fn choose(list: &[String], kernel: &KernelFunctions) -> Result<Choice> {
    let rules = rules();
    let selection = Selection::new(&rules, list);
    let mut choice = Choice {
        functions: Vec::new(),
        denied: BTreeMap::new(),
    };
    let mut chosen = HashSet::new();
    for (item, patterns) in &selection.wanted {
        let mut fitting = 0;
        for function in &kernel.functions {
            let name = source_name(&function.name);
            if !takes_in(patterns, name) || selection.leaves_out(name) {
                continue;
            }
            fitting += 1;
            if !chosen.insert(function.address) {
                continue;
            }
            match refusal(&rules, kernel, function) {
                Some(why) => {
                    let functions = choice.denied.entry(why).or_default();
                    functions.push(function.name.clone());
                }
                None => choice.functions.push(function.clone()),
            }
        }
        let is_group = rules.group.iter().any(|group| group.name == *item);
        if fitting == 0 && !is_group {
            bail!(unknown(&rules, item));
        }
    }
    if choice.functions.is_empty() {
        let why = choice.denied.keys().next().cloned();
        let why = why.unwrap_or_else(|| "this kernel has none of them".to_string());
        return Err(anyhow::anyhow!(why)).context("none of the functions can be probed");
    }
    Ok(choice)
}

/// Why a function is not probed; `None` if it is.
fn refusal(rules: &Rules, kernel: &KernelFunctions, function: &Function) -> Option<String> {
    let denied = rules.deny.iter().find(|deny| {
        let name = source_name(&function.name);
        deny.functions.iter().any(|pattern| fits(pattern, name))
    });
    if let Some(denied) = denied {
        return Some(denied.why.clone());
    }
    if !kernel.is_traceable(function) {
        return Some(NOT_TRACEABLE.to_string());
    }
    if kernel.is_blacklisted(function) {
        return Some(BLACKLISTED.to_string());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name) in [
            ("vfs_read", "vfs_read"),
            ("vfs_*", "vfs_read"),
            ("vfs_*", "vfs_"),
            ("*_read", "vfs_read"),
            ("do_*at", "do_unlinkat"),
            ("*", "anything"),
            ("a*b*c", "a__b__bc"),
            ("copy_p*", "copy_process.isra.0"),
            ("do_mmap", "do_mmap.constprop.0"),
        ] {
            assert!(fits(pattern, source_name(name)), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("vfs_read", "vfs_readv"),
            ("vfs_*", "kvfs_read"),
            ("do_*at", "do_unlinkat2"),
            ("a*b*c", "acb"),
            ("ab*ba", "aba"),
        ] {
            assert!(!fits(pattern, source_name(name)), "{pattern} {name}");
        }
    }

    /// A kernel with functions at 16, 32, ..., of which those in `not_traceable` cannot be probed.
    fn kernel(names: &[&str], not_traceable: &[&str]) -> KernelFunctions {
        let functions: Vec<Function> = names
            .iter()
            .enumerate()
            .map(|(at, name)| Function {
                name: name.to_string(),
                module: None,
                address: (at as u64 + 1) * 16,
            })
            .collect();
        let traceable = names.iter().filter(|name| !not_traceable.contains(name));
        KernelFunctions::of(functions, traceable.map(|name| name.to_string()).collect())
    }

    fn names(choice: &Choice) -> Vec<&str> {
        choice.functions.iter().map(|f| f.name.as_str()).collect()
    }

    #[test]
    fn groups_names_and_what_to_leave_out() {
        let kernel = kernel(&["vfs_read", "vfs_write", "tcp_sendmsg", "my_driver"], &[]);
        let list = |items: &[&str]| {
            items
                .iter()
                .map(|item| item.to_string())
                .collect::<Vec<_>>()
        };
        let choice = choose(&list(&["vfs", "my_*", "!vfs_write"]), &kernel).unwrap();
        assert_eq!(names(&choice), ["vfs_read", "my_driver"]);
        let everything = choose(&[], &kernel).unwrap();
        assert_eq!(names(&everything), ["vfs_read", "vfs_write", "tcp_sendmsg"]);
        let error = choose(&list(&["vfs", "your_driver"]), &kernel)
            .err()
            .unwrap();
        assert!(error.to_string().contains("`your_driver`"), "{error}");
    }

    #[test]
    fn what_is_not_safe_is_denied_whoever_asks() {
        let kernel = kernel(
            &[
                "vfs_read",
                "bpf_get_stack",
                "do_exit",
                "__schedule",
                "vfs_odd",
            ],
            &["vfs_odd"],
        );
        let choice = choose(&["*".to_string()], &kernel).unwrap();
        assert_eq!(names(&choice), ["vfs_read"]);
        let denied: usize = choice.denied.values().map(Vec::len).sum();
        assert_eq!((choice.denied.len(), denied), (4, 4), "{:?}", choice.denied);
        assert!(choose(&["do_exit".to_string()], &kernel).is_err());
    }

    #[test]
    fn the_rules_are_sound() {
        let rules = rules();
        for name in &rules.default {
            assert!(
                rules.group.iter().any(|group| group.name == *name),
                "{name}"
            );
        }
        for group in &rules.group {
            assert!(!group.about.is_empty() && !group.functions.is_empty());
        }
        assert!(rules.deny.iter().all(|deny| !deny.why.is_empty()));
    }
}
