// SPDX-License-Identifier: MIT OR Apache-2.0
//! What could not be translated, and what that means.

use std::collections::BTreeMap;

use super::syntax::{At, Directive};

/// The worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It kept clients out, and nothing does so now.
    Unprotected,
    LeftOut,
    InPart,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Unprotected, Kind::LeftOut, Kind::InPart];

    pub fn title(self) -> &'static str {
        match self {
            Kind::Unprotected => "not protected any more",
            Kind::LeftOut => "left out",
            Kind::InPart => "translated in part",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub kind: Kind,
    pub at: At,
    /// The directive as it is written.
    pub text: String,
    pub meaning: String,
}

#[derive(Debug, Default)]
pub struct Notes {
    pub all: Vec<Note>,
    /// Directives for which nothing has to be done, and how often they came.
    pub unneeded: BTreeMap<String, usize>,
    /// Directives that were read.
    pub total: usize,
}

impl Notes {
    pub fn add(&mut self, kind: Kind, directive: &Directive, meaning: impl Into<String>) {
        let note = Note {
            kind,
            at: directive.at.clone(),
            text: directive.text(),
            meaning: meaning.into(),
        };
        // A directive of `http` is read for each server.
        if !self.all.contains(&note) {
            self.all.push(note);
        }
    }

    pub fn left_out(&mut self, directive: &Directive, meaning: impl Into<String>) {
        self.add(Kind::LeftOut, directive, meaning);
    }

    pub fn in_part(&mut self, directive: &Directive, meaning: impl Into<String>) {
        self.add(Kind::InPart, directive, meaning);
    }

    pub fn unprotected(&mut self, directive: &Directive, meaning: impl Into<String>) {
        self.add(Kind::Unprotected, directive, meaning);
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Note> {
        self.all.iter().filter(move |note| note.kind == kind)
    }
}
