//! `latlab analyze`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{bail, ensure, Result};
use clap::{Args, ValueEnum};
use debox_history::History;
use kit_files::{output, same};

use crate::compare::compare;
use crate::history::join;
use crate::page;
use crate::read::{read, Options, SizeUnit, TimeUnit};
use crate::report::{measure, Measured, Report, Settings};
use crate::request::{Basis, LOADS};
use crate::text;

/// Show what recorded requests say about a server: latency, service inversion, deciles, causes
///
/// Reads the rows of `latlab`, CSV and NDJSON files that have the latency and the size of each request,
/// the database of `oha --db-url`, and the JSON of `vegeta encode`. Several files are several loads of
/// one server, or several sizes of its data set.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  latlab analyze requests.parquet
  latlab analyze load-*.parquet --html report.html
  latlab analyze requests.csv --latency-column took --latency-unit ms --format json
  latlab analyze requests.parquet --history server.parquet   # of: debox record -p PID")]
pub struct Analyze {
    /// Files of requests, one for each load
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Write the figures as a page, in one file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Another run to compare each of the files with
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,

    /// Maximum probability that the tables show any difference between runs of the same server, such as
    /// 5%
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "5%")]
    #[arg(requires = "against")]
    pub error_rate: f64,

    /// History of the server (of `debox record -p`) during the requests: adds burstiness and causes
    #[arg(long, value_name = "FILE")]
    pub history: Vec<PathBuf>,

    /// Look for causes of requests slower than this percentile
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = percentile)]
    pub slow: f64,

    /// Start and end of a latency [default: intended if there is a schedule, otherwise sent]
    #[arg(long, value_enum)]
    pub latency: Option<Basis>,

    /// Load relative to the server's capacity, such as 0.8, for each file that does not contain it
    #[arg(long, value_name = "LOAD", value_delimiter = ',')]
    pub load: Vec<f64>,

    /// Fixed cost of a request on the ideal server, in bytes, in addition to its size
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub request_bytes: u64,

    /// Column of the latency, if its name is not a usual one; in nested objects: `response.latency`
    #[arg(long, value_name = "NAME", help_heading = "Rows of other tools")]
    pub latency_column: Option<String>,

    /// Unit of the latency, if neither the column nor the values have one
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        help_heading = "Rows of other tools"
    )]
    pub latency_unit: Option<TimeUnit>,

    /// Column of the response's size
    #[arg(long, value_name = "NAME", help_heading = "Rows of other tools")]
    pub size_column: Option<String>,

    /// Unit of the size [default: bytes]
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        help_heading = "Rows of other tools"
    )]
    pub size_unit: Option<SizeUnit>,

    /// Column of the time at which the request began
    #[arg(long, value_name = "NAME", help_heading = "Rows of other tools")]
    pub start_column: Option<String>,

    /// Unit of the start time
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        help_heading = "Rows of other tools"
    )]
    pub start_unit: Option<TimeUnit>,

    /// The first line is a request, not a header: columns are numbered from 1
    #[arg(long, help_heading = "Rows of other tools")]
    pub no_header: bool,

    /// Number of the run in oha's database
    #[arg(long, value_name = "N", help_heading = "Rows of other tools")]
    pub run: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for a terminal
    Text,
    /// latlab.analysis/1
    Json,
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    match number.parse::<f64>().map(|number| number * scale) {
        Ok(share) if (0.001..=0.5).contains(&share) => Ok(share),
        _ => Err("expected a share from 0.1% to 50%, as in 0.05 or 5%".to_string()),
    }
}

fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err("a percentile is at least 0 and less than 100".to_string()),
    }
}

/// Runs the command. It prints to `out`, which is `width` columns wide.
pub fn analyze(arguments: &Analyze, out: &mut dyn Write, width: usize) -> Result<()> {
    refuse_inputs(arguments)?;
    if let (Some(why), Some(_)) = (page::missing(), &arguments.html) {
        // Checked before any long work.
        bail!("--html cannot draw a page: {why}");
    }
    let mut runs = measured(arguments)?;
    sort(&mut runs);
    let base = match &arguments.against {
        Some(path) => {
            let run = read(path, &arguments.options())?;
            Some(measure(&run, &arguments.settings(usize::MAX)?)?)
        }
        None => None,
    };
    let mut comparisons = Vec::new();
    if let Some(base) = &base {
        for run in &runs {
            ensure!(
                run.report.unit == base.report.unit,
                "{} and {} are not in the same unit: --latency-unit says it",
                base.report.name,
                run.report.name
            );
        }
        comparisons = compare(base, &runs, arguments.error_rate);
    }
    let mut report = Report::new(runs.into_iter().map(|run| run.report).collect());
    report.against = comparisons;
    if let Some(path) = &arguments.html {
        let page = page::page(&report)?;
        output::replace(path, page.as_bytes())?;
    }
    match arguments.format {
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        }
        Format::Text => text::print(out, &report, width)?,
    }
    Ok(())
}

/// Refuses to overwrite the files that the page is made from.
fn refuse_inputs(arguments: &Analyze) -> Result<()> {
    let Some(page) = &arguments.html else {
        return Ok(());
    };
    let named = arguments.files.iter().chain(&arguments.against);
    same::refuse_inputs(page, named.map(PathBuf::as_path))?;
    if !arguments.history.is_empty() {
        let history = History::open(&arguments.history)?;
        same::refuse_inputs(page, history.files.iter().map(|file| file.path.as_path()))?;
    }
    Ok(())
}

fn measured(arguments: &Analyze) -> Result<Vec<Measured>> {
    ensure!(
        matches!(arguments.load.len(), 0 | 1) || arguments.load.len() == arguments.files.len(),
        "--load has {} values for {} files: give one for all, or one for each",
        arguments.load.len(),
        arguments.files.len()
    );
    let history = match arguments.history.as_slice() {
        [] => None,
        paths => Some(History::open(paths)?),
    };
    let mut runs = Vec::new();
    for (at, path) in arguments.files.iter().enumerate() {
        let run = read(path, &arguments.options())?;
        let mut measured = measure(&run, &arguments.settings(at)?)?;
        if let Some(history) = &history {
            measured.report.server = Some(join(&run, history, arguments.slow)?);
        }
        runs.push(measured);
    }
    Ok(runs)
}

/// Sorts by data set, then by load.
fn sort(runs: &mut [Measured]) {
    runs.sort_by(|a, b| {
        let key = |run: &Measured| {
            let report = &run.report;
            let load = report
                .load
                .or(report.offered_rps)
                .or(report.connections.map(|n| n as f64));
            (report.data_set_bytes, load.unwrap_or(f64::MAX))
        };
        let ((a_bytes, a_load), (b_bytes, b_load)) = (key(a), key(b));
        a_bytes.cmp(&b_bytes).then(a_load.total_cmp(&b_load))
    });
}

impl Analyze {
    fn options(&self) -> Options {
        Options {
            basis: self.latency,
            latency_column: self.latency_column.clone(),
            latency_unit: self.latency_unit,
            size_column: self.size_column.clone(),
            size_unit: self.size_unit,
            start_column: self.start_column.clone(),
            start_unit: self.start_unit,
            no_header: self.no_header,
            run: self.run,
        }
    }

    fn settings(&self, at: usize) -> Result<Settings> {
        let load = self.load.get(at).or(match self.load.as_slice() {
            [one] => Some(one),
            _ => None,
        });
        if let Some(load) = load {
            if !LOADS.contains(load) {
                bail!("a load is a part of the capacity, such as 0.8, not {load}");
            }
        }
        Ok(Settings {
            load: load.copied(),
            request_bytes: self.request_bytes,
        })
    }
}
