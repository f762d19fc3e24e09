//! The page: one file with its data, its script and its style, which opens from disk.

use std::fmt::Write;

use anyhow::{bail, Context, Result};

use crate::report::Report;

const TEMPLATE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/style.css");
const SCRIPTS: &[&str] = &[
    include_str!("../page/plots.js"),
    include_str!("../page/sections.js"),
];
const LIBRARIES: &str = include_str!(concat!(env!("OUT_DIR"), "/libraries.js"));
const LIBRARIES_STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/libraries.css"));
const LICENCES: &str = include_str!(concat!(env!("OUT_DIR"), "/licences.txt"));
const MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/missing.txt"));

/// Why pages cannot be drawn by this build, if so.
pub fn missing() -> Option<&'static str> {
    (!MISSING.is_empty()).then_some(MISSING)
}

/// The page of a report.
pub fn page(report: &Report) -> Result<String> {
    if let Some(why) = missing() {
        bail!(
            "this debox was built without what the page is drawn with ({why}): install nodejs and npm, \
             and build debox again with a network"
        );
    }
    // In a script, `<` could end it; in JSON it stands in texts only.
    let data = serde_json::to_string(report)
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
    // The template's holes, in order: what is put in is never looked at again.
    for (hole, text) in [
        ("/*LIBRARIES-STYLE*/", LIBRARIES_STYLE),
        ("/*STYLE*/", STYLE),
        ("<!--LICENCES-->", &licences),
        ("/*DATA*/", &data),
        ("/*LIBRARIES*/", LIBRARIES),
        ("/*SCRIPT*/", &SCRIPTS.concat()),
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
