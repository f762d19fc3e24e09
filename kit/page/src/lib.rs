//! HTML pages that can be opened from disk: one file with its data, script and style.
//!
//! This crate has the frame, the plots and the libraries that draw them, which `scripts/page-libraries` fetches from npm. What a page
//! shows is its own script's. Nothing here knows whose page it is.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fmt::Write;

use anyhow::{bail, Context, Result};

#[cfg(test)]
mod palette;
mod shown;

const TEMPLATE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/style.css");
/// Scripts that every page includes.
const COMMON: &[&str] = &[
    include_str!("../page/elements.js"),
    include_str!("../page/tables.js"),
    include_str!("../page/plots.js"),
    include_str!("../page/frame.js"),
];
const LIBRARIES: &str = include_str!(concat!(env!("OUT_DIR"), "/libraries.js"));
const LIBRARIES_STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/libraries.css"));
const LICENCES: &str = include_str!(concat!(env!("OUT_DIR"), "/licences.txt"));
const MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/missing.txt"));

/// If this build cannot draw pages: why, and what it takes.
pub fn missing() -> Option<&'static str> {
    (!MISSING.is_empty()).then_some(MISSING)
}

/// A page that a script draws from data.
pub struct Page<'a> {
    pub title: &'a str,
    /// The command that shows the same in a terminal.
    pub command: &'a str,
    /// Draws the sections with the functions of `page/*.js`, and calls `start`.
    pub script: &'a str,
    /// Styles in addition to the common style sheet.
    pub style: &'a str,
}

impl Page<'_> {
    /// Makes one self-contained file. Scripts find the data as `data`.
    pub fn compose(&self, data: &impl serde::Serialize) -> Result<String> {
        if let Some(why) = missing() {
            bail!("{why}");
        }
        // `<` could end the script element; in JSON it occurs only inside strings.
        let data = shown::to_string(data)
            .context("the report cannot be written as JSON")?
            .replace('<', "\\u003c");
        let mut licences = String::with_capacity(LICENCES.len());
        for letter in LICENCES.chars() {
            match letter {
                '<' => licences.push_str("&lt;"),
                '&' => licences.push_str("&amp;"),
                _ => licences.push(letter),
            }
        }
        let mut page = String::with_capacity(data.len() + LIBRARIES.len() + 100_000);
        let mut rest = TEMPLATE;
        // The template's placeholders, in order: inserted text is never searched again.
        for (hole, text) in [
            ("<!--TITLE-->", self.title),
            ("/*LIBRARIES-STYLE*/", LIBRARIES_STYLE),
            ("/*STYLE*/", &[STYLE, self.style].concat()),
            ("<!--TITLE-->", self.title),
            ("<!--COMMAND-->", self.command),
            ("<!--LICENCES-->", &licences),
            ("/*DATA*/", &data),
            ("/*LIBRARIES*/", LIBRARIES),
            ("/*SCRIPT*/", &[&COMMON.concat(), self.script].concat()),
        ] {
            let (before, after) = rest
                .split_once(hole)
                .with_context(|| format!("the page has no place for {hole}"))?;
            write!(page, "{before}{text}")?;
            rest = after;
        }
        page.push_str(rest);
        Ok(page)
    }
}
