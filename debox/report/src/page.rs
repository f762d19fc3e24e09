// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as one HTML page.

use anyhow::Result;
pub use kit_page::missing;
use kit_page::Page;

use crate::report::Report;

/// Draws the report's sections.
const SECTIONS: &str = concat!(
    include_str!("../page/model.js"),
    include_str!("../page/selection.js"),
    include_str!("../page/answer.js"),
    include_str!("../page/over_time.js"),
    include_str!("../page/flame.js"),
    include_str!("../page/on_cpu.js"),
    include_str!("../page/calls.js"),
    include_str!("../page/groups.js"),
    include_str!("../page/loops.js"),
    include_str!("../page/single.js"),
    include_str!("../page/distributions.js"),
    include_str!("../page/user_level.js"),
    include_str!("../page/report.js"),
);

pub fn page(report: &Report) -> Result<String> {
    let page = Page {
        title: "DeBox report",
        command: "debox report",
        script: SECTIONS,
        style: include_str!("../page/style.css"),
    };
    page.compose(report)
}
