//! `debox report`: shows what a recording contains.

mod groups;
mod requests;
mod slowest;
mod statistics;
mod tables;
mod user_level;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use debox_history::History;
use debox_report::{analyze, page, Analysis};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kit_console::Allowed;
use kit_files::{output, same};

use crate::options::Report;
use crate::output::terminal_width;
use crate::table::TableOptions;

/// Reports that are ready sooner show no progress bar.
const QUICK: Duration = Duration::from_secs(2);

pub fn report(arguments: Report) -> Result<u8> {
    let history = History::open(&arguments.files)?;
    let base = arguments
        .against
        .as_ref()
        .map(|path| History::open(&[path]));
    let base = base.transpose()?;
    refuse_inputs(&arguments, &history, base.as_ref())?;
    if arguments.requests {
        return requests::report(&history, &arguments);
    }
    if let (Some(why), Some(_)) = (page::missing(), &arguments.html) {
        // Checked before any long work.
        anyhow::bail!("--html cannot draw a page: {why}");
    }
    let mut analysis = read(&history, "reading")?;
    if let Some(base) = &base {
        analysis.compare(&read(base, "reading the other")?);
    }
    let report = &analysis.report;
    let mut quiet = false;
    if let Some(path) = &arguments.html {
        output::replace(path, page::page(report)?.as_bytes())?;
    }
    if let Some(path) = &arguments.json {
        let mut bytes =
            serde_json::to_vec(report).context("the report cannot be written as JSON")?;
        bytes.push(b'\n');
        if path == Path::new("-") {
            quiet = true;
            kit_console::print(Allowed::Json, |out| out.write_all(&bytes))?;
        } else {
            output::replace(path, &bytes)?;
        }
    }
    if !quiet {
        let allowed = kit_console::colours();
        let options = TableOptions {
            color: allowed == Allowed::Colours,
            width: terminal_width(1),
            all: arguments.all,
        };
        kit_console::print(allowed, |out| match (arguments.by, arguments.calls) {
            (Some(by), _) => groups::print(out, report, by, &options),
            (None, true) => statistics::statistics(out, report, &options),
            (None, false) => tables::print(out, report, &options),
        })?;
    }
    Ok(0)
}

/// Refuses to overwrite the files that the report is made from.
fn refuse_inputs(arguments: &Report, history: &History, base: Option<&History>) -> Result<()> {
    let json = arguments.json.as_deref();
    let outputs = [
        arguments.html.as_deref(),
        json.filter(|path| *path != Path::new("-")),
    ];
    let outputs: Vec<&Path> = outputs.into_iter().flatten().collect();
    let read = history.files.iter();
    let read = read.chain(base.into_iter().flat_map(|base| &base.files));
    let inputs: Vec<&Path> = read.map(|file| file.path.as_path()).collect();
    for output in &outputs {
        same::refuse_inputs(output, inputs.iter().copied())?;
    }
    same::refuse_each_other(&outputs)
}

fn read(history: &History, what: &'static str) -> Result<Analysis> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let bar = ProgressBar::with_draw_target(Some(history.rows()), ProgressDrawTarget::hidden());
    let style = "{msg} {bar:30} {human_pos} of {human_len} records, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).context("the bar's template is wrong")?);
    bar.set_message(what);
    let (begin, shown) = (Instant::now(), AtomicU64::new(0));
    let wanted = kit_console::error_is_read();
    let analysis = analyze(history, threads, &|rows| {
        bar.inc(rows);
        let is_late = wanted && begin.elapsed() >= QUICK;
        if is_late && shown.swap(1, Ordering::Relaxed) == 0 {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    });
    bar.finish_and_clear();
    analysis
}
