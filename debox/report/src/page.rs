//! A report as one HTML page.

use anyhow::Result;
pub use kit_page::missing;
use kit_page::Page;

use crate::report::Report;

/// Draws the report's sections.
const SECTIONS: &str = include_str!("../page/sections.js");

pub fn page(report: &Report) -> Result<String> {
    let page = Page {
        title: "DeBox report",
        command: "debox report",
        script: SECTIONS,
        style: "",
    };
    page.compose(report)
}
