//! The figures as one HTML page, in the style of `debox report`.

use anyhow::Result;
pub use kit_page::missing;
use kit_page::Page;
use serde::Serialize;

use crate::report::Report;

/// The script that draws the sections of both pages.
const SECTIONS: &str = concat!(
    include_str!("../page/plots.js"),
    include_str!("../page/sections.js")
);
const STYLE: &str = include_str!("../page/style.css");

pub fn page(report: &Report) -> Result<String> {
    compose("latlab analyze", include_str!("../page/analyze.js"), report)
}

/// The page of `latlab study`, from `latlab.study/1`.
pub fn study(found: &impl Serialize) -> Result<String> {
    compose("latlab study", include_str!("../page/study.js"), found)
}

fn compose(command: &str, script: &str, data: &impl Serialize) -> Result<String> {
    let page = Page {
        title: command,
        command,
        script: &[SECTIONS, script].concat(),
        style: STYLE,
    };
    page.compose(data)
}
