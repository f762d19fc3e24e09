//! The figures as one HTML page, of the same kind as that of `debox report`.

use anyhow::Result;
pub use debox_report::page::missing;
use debox_report::page::Page;

use crate::report::Report;

pub fn page(report: &Report) -> Result<String> {
    let page = Page {
        title: "latlab analyze",
        command: "latlab analyze",
        script: concat!(
            include_str!("../page/plots.js"),
            include_str!("../page/sections.js")
        ),
        style: include_str!("../page/style.css"),
    };
    page.compose(report)
}
