// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which directive holds where: those of a block, and of the blocks around it.

use super::syntax::Directive;

/// Levels that a location has around it: `http` and `server`.
pub const OF_SERVER: usize = 2;

/// The blocks around a place, the outermost first.
#[derive(Debug, Clone, Default)]
pub struct Scope<'a> {
    levels: Vec<&'a [Directive]>,
}

impl<'a> Scope<'a> {
    pub fn of(levels: &[&'a [Directive]]) -> Scope<'a> {
        let levels = levels.to_vec();
        Scope { levels }
    }

    pub fn with(&self, block: &'a [Directive]) -> Scope<'a> {
        let mut levels = self.levels.clone();
        levels.push(block);
        Scope { levels }
    }

    /// The innermost block.
    pub fn own(&self) -> &'a [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// Of the innermost block.
    pub fn own_one(&self, name: &str) -> Option<&'a Directive> {
        self.own().iter().rev().find(|one| one.name == name)
    }

    /// All of a name in the innermost block that has one, and the number of that block.
    pub fn all(&self, names: &[&str]) -> Option<(usize, Vec<&'a Directive>)> {
        self.levels
            .iter()
            .enumerate()
            .rev()
            .find_map(|(level, block)| {
                let its = block
                    .iter()
                    .filter(|one| names.contains(&one.name.as_str()));
                let its: Vec<&Directive> = its.collect();
                (!its.is_empty()).then_some((level, its))
            })
    }

    /// As [`Scope::all`], if that block is at this level or further inside.
    pub fn all_from(&self, level: usize, names: &[&str]) -> Option<Vec<&'a Directive>> {
        let (at, its) = self.all(names)?;
        (at >= level).then_some(its)
    }

    pub fn one(&self, name: &str) -> Option<&'a Directive> {
        let (_, its) = self.all(&[name])?;
        its.last().copied()
    }

    pub fn one_from(&self, level: usize, name: &str) -> Option<&'a Directive> {
        self.all_from(level, &[name])?.last().copied()
    }

    /// The first word of a directive.
    pub fn word(&self, name: &str) -> Option<&'a str> {
        self.one(name).map(|one| one.word(0))
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.word(name) == Some("on")
    }
}
