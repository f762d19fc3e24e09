// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hbench decompose`, and the page of `hbench show --html`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, ensure, Context, Result};
use hbench::decompose::Decomposer;
use hbench::runner::{Plan, Run};
use hbench::signals::{catch, interrupted};
use hbench_results::decomposition::{self, Document, SCHEMA};
use hbench_results::file::Recorded;
use hbench_results::picture;
use kit_console::{say, Allowed};
use kit_files::{input, output};

use crate::exit::INTERRUPTED;
use crate::measure::{self, is_replaceable};
use crate::options::{Decompose, Format};

/// A document of all benchmarks is smaller.
const DOCUMENT_MAX: u64 = 64 << 20;

pub fn decompose(arguments: &Decompose) -> Result<u8> {
    if let Some(path) = &arguments.output {
        output::check(path)?;
    }
    let directory = arguments.directory.clone();
    let plan = Plan {
        cases: measure::select(&arguments.names)?,
        rounds: arguments.rounds,
        sample: arguments.sample,
        is_parallel: false,
        under: None,
        directory: directory.unwrap_or_else(std::env::temp_dir),
        may_drop_caches: false,
    };
    catch();
    let begun = Instant::now();
    let cases = plan.cases.clone();
    let decomposer = Decomposer::prepare(Run::prepare(plan)?, arguments.rounds)?;
    let mut document = Document {
        schema: SCHEMA.to_string(),
        kernel: decomposer.kernel().to_string(),
        decompositions: Vec::new(),
        left_out: Vec::new(),
    };
    let mut printed = Ok(());
    for (at, case) in cases.iter().enumerate() {
        match decomposer.decompose(case) {
            Ok(found) => {
                if arguments.format == Format::Text && printed.is_ok() {
                    let separator = if at > 0 { "\n" } else { "" };
                    printed = kit_console::print(Allowed::Text, |out| {
                        out.write_all(separator.as_bytes())?;
                        decomposition::print(out, &found)
                    });
                }
                document.decompositions.push(found);
                // After each benchmark the file is whole, whatever ends this process. What keeps it from being written
                // is said at the end, when it is written again.
                if let Some(path) = arguments
                    .output
                    .as_ref()
                    .filter(|path| is_replaceable(path))
                {
                    let _ = keep(path, &document);
                }
            }
            Err(_) if interrupted() => break,
            Err(error) => {
                say!("hbench: {} is left out: {error:#}", case.name());
                document.left_out.push((case.name(), format!("{error:#}")));
            }
        }
    }
    // An earlier file is not replaced by an empty one.
    if let (Some(path), false) = (&arguments.output, document.decompositions.is_empty()) {
        // With those that were left out after the last one.
        keep(path, &document)?;
        say!(
            "hbench: {} decomposed in {:.0} s, in {}",
            kit_units::counted(document.decompositions.len() as u64, "benchmark"),
            begun.elapsed().as_secs_f64(),
            path.display()
        );
    }
    if arguments.format == Format::Json {
        let bytes = bytes(&document)?;
        printed = kit_console::print(Allowed::Json, |out| out.write_all(&bytes));
    }
    printed?;
    if interrupted() {
        return Ok(INTERRUPTED);
    }
    ensure!(
        !document.decompositions.is_empty(),
        "none of the benchmarks could be decomposed"
    );
    Ok(0)
}

fn bytes(document: &Document) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn keep(path: &Path, document: &Document) -> Result<()> {
    output::replace(path, &bytes(document)?)
}

/// Writes the page of a result, with decompositions if there are any.
pub fn page(html: &Path, recorded: &Recorded, records: &[PathBuf]) -> Result<()> {
    if let Some(why) = picture::missing() {
        bail!("--html cannot draw a page: {why}");
    }
    ensure!(
        !recorded.samples.is_empty(),
        "there are no samples to draw a page of"
    );
    let mut decompositions = Vec::new();
    for path in records {
        let document = read(path).with_context(|| {
            format!(
                "cannot use {} as a result of `hbench decompose -o`",
                path.display()
            )
        })?;
        decompositions.extend(document.decompositions);
    }
    output::replace(html, picture::page(recorded, &decompositions)?.as_bytes())?;
    say!("hbench: the page is {}", html.display());
    Ok(())
}

fn read(path: &Path) -> Result<Document> {
    let file = input::open(path)?;
    let length = file.metadata().context("it cannot be looked at")?.len();
    ensure!(length <= DOCUMENT_MAX, "it is too long");
    let document: Document =
        serde_json::from_reader(std::io::BufReader::new(file)).context("it is no such JSON")?;
    ensure!(
        document.schema == SCHEMA,
        "it is {}, and not {SCHEMA}",
        document.schema
    );
    Ok(document)
}
