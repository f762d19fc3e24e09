//! Reads rule files. Errors name the file and the rule's number.

use anyhow::{anyhow, bail};
use serde::Deserialize;

use super::class::Class;
use super::glob::Glob;

/// A test of one argument word.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArgTest {
    /// Which argument: 0, 1 or 2.
    pub(super) index: usize,
    #[serde(default = "all_bits")]
    pub(super) mask: u64,
    pub(super) values: Vec<u64>,
}

fn all_bits() -> u64 {
    u64::MAX
}

/// One rule, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) label: String,
    pub(super) class: Class,
    #[serde(default)]
    pub(super) site: Vec<Glob>,
    #[serde(default)]
    pub(super) within: Vec<Glob>,
    #[serde(default)]
    pub(super) within_all: Vec<Glob>,
    #[serde(default)]
    pub(super) wait: Vec<Glob>,
    #[serde(default)]
    pub(super) calls: Vec<Glob>,
    pub(super) args: Option<ArgTest>,
    /// A stack that this rule explains, innermost frame first; a test checks it.
    #[serde(default)]
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) example: Vec<String>,
    /// The call and the arguments of the example, if the rule tests them.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) example_call: Option<String>,
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) example_args: Option<[u64; 3]>,
}

impl Rule {
    fn check(&self) -> anyhow::Result<()> {
        if self.label.trim().is_empty() {
            bail!("the label is empty");
        }
        let patterns = [
            &self.site,
            &self.within,
            &self.within_all,
            &self.wait,
            &self.calls,
        ];
        if patterns.iter().all(|globs| globs.is_empty()) && self.args.is_none() {
            bail!("it would match every sleep: give `site`, `within`, `wait`, `calls` or `args`");
        }
        if let Some(test) = &self.args {
            if self.calls.is_empty() {
                bail!("args without `calls`: arguments are kept for the calls named there only");
            }
            if test.index > 2 {
                bail!(
                    "args.index is {}, but only arguments 0, 1 and 2 are known",
                    test.index
                );
            }
            if test.values.is_empty() {
                bail!("args.values is empty: no call would pass");
            }
            if let Some(value) = test.values.iter().find(|value| **value & !test.mask != 0) {
                bail!(
                    "args.values has {value:#x}, which args.mask {:#x} never lets by",
                    test.mask
                );
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    primitives: Vec<Glob>,
    #[serde(default)]
    rule: Vec<toml::Table>,
}

/// The primitives and the rules of one file.
pub(super) fn file(name: &str, text: &str) -> anyhow::Result<(Vec<Glob>, Vec<Rule>)> {
    let file: File =
        toml::from_str(text).map_err(|error| anyhow!("{name} is not a rule file: {error}"))?;
    let mut rules = Vec::new();
    for (index, table) in file.rule.into_iter().enumerate() {
        let label = table
            .get("label")
            .and_then(|label| label.as_str())
            .unwrap_or("no label");
        let place = format!("{name}: rule {} ({label})", index + 1);
        let rule: Rule = table.try_into().map_err(|error: toml::de::Error| {
            // Line numbers would mislead: here they count from the start of the rule.
            anyhow!("{place}: {}", error.message())
        })?;
        rule.check().map_err(|error| anyhow!("{place}: {error}"))?;
        rules.push(rule);
    }
    Ok((file.primitives, rules))
}
