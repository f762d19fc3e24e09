// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the label or the class of a sleep.

use super::fields::{Field, Fields, Site};
use super::unknown::either;
use super::values::Glob;

/// Whether a site is one of those with some labels, or of some classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteTest {
    is_class: bool,
    globs: Vec<Glob>,
}

impl SiteTest {
    pub(super) fn label(globs: Vec<Glob>) -> SiteTest {
        let is_class = false;
        SiteTest { is_class, globs }
    }

    pub(super) fn class(globs: Vec<Glob>) -> SiteTest {
        let is_class = true;
        SiteTest { is_class, globs }
    }

    pub(super) fn globs(&self) -> &[Glob] {
        &self.globs
    }

    pub(super) fn field(&self) -> Field {
        match self.is_class {
            true => Field::Class,
            false => Field::Label,
        }
    }

    pub fn matches(&self, site: Site<'_>) -> bool {
        let name = match self.is_class {
            true => site.class,
            false => site.label,
        };
        self.globs.iter().any(|glob| glob.matches(name))
    }
}

impl SiteTest {
    /// Whether the call slept at such a site.
    pub(super) fn truth(&self, record: &impl Fields) -> Option<bool> {
        let mut slept = Some(false);
        for site in record.sites() {
            slept = either(slept, site.map(|site| self.matches(site)));
        }
        slept
    }
}
