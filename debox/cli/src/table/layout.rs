// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sections of a report share.

use std::io::{self, Write};

use anstyle::Style;
use debox::frame::Frame;

/// How to print a report.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions {
    /// Whether to use colours.
    pub color: bool,
    /// Width of the terminal in columns.
    pub width: usize,
    /// Print every row; otherwise each section has only its longest rows.
    pub all: bool,
}

/// Prints a section's title after an empty line.
pub(crate) fn heading(out: &mut impl Write, text: &str, options: &TableOptions) -> io::Result<()> {
    writeln!(out)?;
    line(out, text, Style::new().bold(), options)
}

/// Prints a line of prose, styled if colours are on.
pub(crate) fn line(
    out: &mut impl Write,
    text: &str,
    style: Style,
    options: &TableOptions,
) -> io::Result<()> {
    let text = kit_console::printable(text);
    if options.color {
        writeln!(out, "{style}{text}{style:#}")
    } else {
        writeln!(out, "{text}")
    }
}

/// How many of `rows` to show: all, or `limit`. A single further row is shown instead of being mentioned.
pub(crate) fn shown(rows: usize, limit: usize, options: &TableOptions) -> usize {
    if options.all || rows <= limit + 1 {
        rows
    } else {
        limit
    }
}

/// `label (class)`.
pub(super) fn label_and_class(label: &str, class: &str) -> String {
    if class.is_empty() {
        label.to_string()
    } else {
        format!("{label} ({class})")
    }
}

/// A kernel function. Its offset does not help people, so only the full report has it.
pub(super) fn kernel_frame(frame: &Frame, options: &TableOptions) -> Frame {
    match options.all {
        true => frame.clone(),
        false => frame.without_offset(),
    }
}

/// The innermost frames of a stack in one line, callee first. It starts at the program's own frame, because the call's
/// name implies the wrappers below.
pub(super) fn stack(frames: &[Frame], caller: Option<&Frame>, options: &TableOptions) -> String {
    /// Enough to tell most call sites apart.
    const FRAMES: usize = 3;
    if frames.is_empty() {
        return "unknown".to_string();
    }
    let own = caller.and_then(|caller| frames.iter().position(|frame| frame == caller));
    let frames = &frames[own.filter(|_| !options.all).unwrap_or(0)..];
    let shown = shown(frames.len(), FRAMES, options);
    let texts: Vec<String> = frames[..shown].iter().map(Frame::to_string).collect();
    let mut text = texts.join(" < ");
    if shown < frames.len() {
        text.push_str(" < …");
    }
    text
}
