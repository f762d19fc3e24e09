//! `debox export`: converts a history to another tool's format.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use debox_export::{Format, Options, Summary, Weight};
use debox_history::History;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kit_console::{say, Allowed, StandardOutput};
use kit_files::output::Output;
use kit_files::same;

use crate::options::{Export, ExportFormat, ExportWeight};
use crate::units;

/// Exports that take longer than this show a progress bar.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn export(arguments: Export) -> Result<u8> {
    let options = options(&arguments)?;
    let history = History::open(&arguments.files)?;
    let written = match arguments.output.as_os_str() == "-" {
        true => to_standard_output(&history, &options),
        false => to_file(&history, &options, &arguments.output),
    };
    match written {
        Ok(summary) => say_exported(&history, &arguments, &summary),
        // The reader has closed the pipe, as `head` does.
        Err(error) if is_closed_pipe(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(0)
}

fn options(arguments: &Export) -> Result<Options> {
    let format = match arguments.format {
        Some(ExportFormat::Perfetto) => Format::Perfetto,
        Some(ExportFormat::Pprof) => Format::Pprof,
        Some(ExportFormat::Folded) => Format::Folded,
        Some(ExportFormat::Ndjson) => Format::Ndjson,
        Some(ExportFormat::Text) => Format::Text,
        Some(ExportFormat::Csv) => Format::Csv,
        None => by_name(arguments.output.file_name().unwrap_or_default()).context(
            "which format? name one with --format perfetto, pprof, folded, ndjson, text or csv",
        )?,
    };
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (from_ns, to_ns) = (arguments.from.map(ns), arguments.to.map(ns));
    if let (Some(from), Some(to)) = (from_ns, to_ns) {
        ensure!(
            from < to,
            "--from is not before --to: there is nothing between them"
        );
    }
    Ok(Options {
        format,
        weight: match arguments.weight {
            ExportWeight::Blocked => Weight::Blocked,
            ExportWeight::Cpu => Weight::Cpu,
            ExportWeight::Runqueue => Weight::Runqueue,
            ExportWeight::Samples => Weight::Samples,
        },
        filter: arguments.filter.clone(),
        from_ns,
        to_ns,
    })
}

/// The format that a file's name implies.
fn by_name(name: &OsStr) -> Option<Format> {
    let name = name.to_string_lossy().to_lowercase();
    let ends = [
        (
            Format::Perfetto,
            &[".pftrace", ".perfetto-trace", ".perfetto"][..],
        ),
        (Format::Pprof, &[".pb.gz", ".pprof"]),
        (Format::Folded, &[".folded", ".collapsed"]),
        (Format::Ndjson, &[".ndjson", ".jsonl"]),
        (Format::Text, &[".txt"]),
        (Format::Csv, &[".csv"]),
    ];
    let found = ends
        .iter()
        .find(|(_, ends)| ends.iter().any(|end| name.ends_with(end)));
    found.map(|(format, _)| *format)
}

fn to_standard_output(history: &History, options: &Options) -> Result<Summary> {
    if options.format.is_binary() && kit_console::is_read() {
        bail!("this format is not for reading on a terminal: name a file with -o FILE");
    }
    let mut out = StandardOutput::open(match options.format {
        Format::Perfetto | Format::Pprof => Allowed::Anything,
        Format::Folded | Format::Text | Format::Csv => Allowed::Text,
        Format::Ndjson => Allowed::Json,
    });
    let summary = with_progress(history, options, &mut out)?;
    out.finish().context("cannot write to standard output")?;
    Ok(summary)
}

/// Replaces the file only once it is complete.
fn to_file(history: &History, options: &Options, path: &Path) -> Result<Summary> {
    same::refuse_inputs(path, history.files.iter().map(|file| file.path.as_path()))?;
    let output = Output::create(path)?;
    let summary = {
        let mut out = BufWriter::new(&output);
        let summary = with_progress(history, options, &mut out)?;
        out.flush()
            .with_context(|| format!("cannot write {}", path.display()))?;
        summary
    };
    output.commit()?;
    Ok(summary)
}

fn with_progress(history: &History, options: &Options, out: &mut dyn Write) -> Result<Summary> {
    let bar = ProgressBar::with_draw_target(Some(history.rows()), ProgressDrawTarget::hidden());
    let style =
        ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} records, {eta} left")
            .context("the progress bar's template is wrong")?;
    bar.set_style(style);
    let began = Instant::now();
    let mut is_shown = !kit_console::error_is_read();
    let summary = debox_export::export(history, options, out, &mut |rows| {
        if !is_shown && began.elapsed() >= PATIENCE {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            is_shown = true;
        }
        bar.set_position(rows);
    });
    bar.finish_and_clear();
    summary
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}

fn say_exported(history: &History, arguments: &Export, summary: &Summary) {
    let rows = match summary.exported == summary.rows {
        true => units::count(summary.rows),
        false => format!(
            "{} of {}",
            units::count(summary.exported),
            units::count(summary.rows)
        ),
    };
    let place = match arguments.output.as_os_str() == "-" {
        true => "standard output".to_string(),
        false => arguments.output.display().to_string(),
    };
    say!(
        "debox: {rows} records in {place}, {}",
        units::bytes(summary.bytes)
    );
    if summary.moved > 0 {
        say!(
            "debox: {} calls and sleeps overlap with others of their thread and are drawn shorter; what \
             is said of them has their true times",
            units::count(summary.moved)
        );
    }
    for file in &history.files {
        let (meta, path) = (&file.meta, file.path.display());
        if file.cut_off > 0 {
            say!(
                "debox: {path} ends with {} that are no whole group of records: not exported",
                units::bytes(file.cut_off)
            );
        }
        if meta.lost.unwritten > 0 {
            say!(
                "debox: {path}: {} records could not be written when it was recorded",
                units::count(meta.lost.unwritten)
            );
        }
        if meta.lost.records > 0 || meta.lost.sleeps > 0 {
            say!(
                "debox: {path}: {} records and {} sleeps were lost when it was recorded",
                units::count(meta.lost.records),
                units::count(meta.lost.sleeps)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_speak_of_formats() {
        for (name, format) in [
            ("a.pftrace", Some(Format::Perfetto)),
            ("A.PB.GZ", Some(Format::Pprof)),
            ("x.folded", Some(Format::Folded)),
            ("x.jsonl", Some(Format::Ndjson)),
            ("reads.csv", Some(Format::Csv)),
            ("-", None),
            ("x.gz", None),
            ("", None),
        ] {
            assert_eq!(by_name(OsStr::new(name)), format, "{name}");
        }
    }
}
