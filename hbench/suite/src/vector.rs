// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hbench vector`, `hbench calibrate`, `hbench predict`, and `hbench explain A B APPLICATION`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use hbench::signals::catch;
use hbench_results::application::Application;
use hbench_results::machine::Machine;
use hbench_results::vectors::{self, Found};
use hbench_results::{
    calibrate, characterize, contrast, file, join, predict as prediction, prediction_text,
    vector_text,
};
use kit_console::{say, Allowed};
use kit_files::output;
use kit_units::parse_duration;
use serde::Serialize;

use crate::options::{Calibrate, Explain, Predict, Vector};
use crate::printing::{print, width};
use crate::recording;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Calls of getppid that are recorded.
const CALLS: u32 = 20_000;

pub fn vector(arguments: &Vector) -> Result<()> {
    if let Some(path) = &arguments.output {
        output::check(path)?;
    }
    let on = arguments.on.as_deref().map(vectors::machine).transpose()?;
    let path = match arguments.files.as_slice() {
        [] => {
            ensure!(
                !arguments.command.is_empty(),
                "name a result of `hbench run -o`, a recording of `debox record`, or a command after --"
            );
            return keep_application(arguments, of_command(arguments, on)?);
        }
        [path] => path,
        several => return of_several(arguments, several, on),
    };
    match vectors::read(path)? {
        Found::Parquet => {}
        Found::Machine(machine) => return keep_machine(arguments, &machine),
        Found::Application(mut application) => {
            application.machine = on.or(application.machine);
            return keep_application(arguments, *application);
        }
    }
    // Each kind of Parquet file says in its footer what it is.
    match file::read(path) {
        Ok(recorded) => keep_machine(arguments, &Machine::of(&recorded)),
        Err(no_result) => {
            let made = characterize::application(&[path], VERSION);
            let mut made = made.with_context(|| {
                format!("{no_result:#}; and it is no recording of debox, either")
            })?;
            made.machine = on;
            keep_application(arguments, made)
        }
    }
}

/// Results on one machine, or the files of one recording, which `debox record` split by time or size.
fn of_several(arguments: &Vector, files: &[PathBuf], on: Option<Machine>) -> Result<()> {
    let first = files.first().context("there is no file")?;
    if let Err(no_result) = file::read(first) {
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let made = characterize::application(&paths, VERSION);
        let mut made = made.with_context(|| {
            format!("{no_result:#}; and they are no recording of debox, either")
        })?;
        made.machine = on;
        return keep_application(arguments, made);
    }
    let recorded = files.iter().map(|path| file::read(path));
    let joined = join::join(recorded.collect::<Result<Vec<_>>>()?)?;
    keep_machine(arguments, &Machine::of(&joined))
}

fn of_command(arguments: &Vector, on: Option<Machine>) -> Result<Application> {
    let debox = recording::find_debox(arguments.debox.as_deref())?;
    let directory = tempfile::tempdir().context("cannot create a directory for the recording")?;
    let place = |name: &str| directory.path().join(name);
    catch();
    // Before the command runs once: whether recording is possible at all.
    let own = std::env::current_exe().context("cannot find this program's file")?;
    let calls: Vec<OsString> = vec![own.into(), "calls".into(), CALLS.to_string().into()];
    recording::record(&debox, &calls, &place("calls.parquet"))?;
    let tap = characterize::tap(&place("calls.parquet"))?;
    let command = &arguments.command;
    recording::run(command, true)?;
    let mut runs = Vec::new();
    for _ in 0..arguments.runs {
        runs.push(recording::run(command, false)?);
    }
    let recorded = place("recording.parquet");
    recording::record(&debox, command, &recorded)?;
    let mut made = characterize::application(&[&recorded], VERSION)?;
    made.runs = runs;
    made.tap = Some(tap);
    made.machine = on;
    Ok(made)
}

fn keep_machine(arguments: &Vector, machine: &Machine) -> Result<()> {
    keep(arguments, machine)?;
    show(|out| vector_text::machine(out, machine))
}

fn keep_application(arguments: &Vector, made: Application) -> Result<()> {
    keep(arguments, &made)?;
    show(|out| vector_text::application(out, &made, arguments.all, width()))?;
    if made.machine.is_none() {
        say!("hbench: the vector does not have the costs of its machine: `hbench predict` will need them by --on");
    }
    Ok(())
}

fn keep(arguments: &Vector, vector: &impl Serialize) -> Result<()> {
    match &arguments.output {
        Some(path) => {
            vectors::write(path, vector)?;
            say!("hbench: the vector is in {}", path.display());
        }
        None => say!("hbench: the vector is not kept: name a file with -o"),
    }
    Ok(())
}

fn show(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<()> {
    let mut printed = Vec::new();
    write(&mut printed)?;
    kit_console::print(Allowed::Text, |out| out.write_all(&printed))?;
    Ok(())
}

/// The machine's name is that of its file.
fn named(path: &Path) -> Result<(String, Machine)> {
    let name = path.file_stem().unwrap_or(path.as_os_str());
    Ok((name.to_string_lossy().into_owned(), vectors::machine(path)?))
}

pub fn calibrate(arguments: &Calibrate) -> Result<()> {
    output::check(&arguments.output)?;
    let here = vectors::machine(&arguments.on)?;
    let mut runs = Vec::new();
    for word in &arguments.times {
        let (path, time) = word
            .rsplit_once('=')
            .with_context(|| format!("{word} has no time: write it as in app.vec=1.23s"))?;
        let time = parse_duration(time).map_err(|error| anyhow::anyhow!("{word}: {error}"))?;
        runs.push((
            vectors::application(Path::new(path))?,
            time.as_secs_f64() * 1e9,
        ));
    }
    let found = calibrate::calibrate(&here, &runs)?;
    vectors::write(&arguments.output, &found.machine)?;
    show(|out| prediction_text::calibrated(out, &found, &arguments.times))?;
    say!("hbench: the vector is in {}", arguments.output.display());
    Ok(())
}

pub fn predict(arguments: &Predict) -> Result<()> {
    let application = vectors::application(&arguments.application)?;
    let machines = arguments.machines.iter().map(|path| named(path));
    let machines = machines.collect::<Result<Vec<_>>>()?;
    let on = arguments.on.as_deref().map(vectors::machine).transpose()?;
    let found = prediction::predict(&application, &machines, on.as_ref())?;
    print(&found, arguments.format, |out| {
        prediction_text::prediction(out, &found, arguments.all, width())
    })
}

/// Whether two machines and an application are named, and no benchmarks. A benchmark's name is none of a file; what is
/// not there is an error when it is read.
pub fn are_vectors(arguments: &Explain) -> bool {
    let is_files = |name: &String| {
        let path = Path::new(name);
        let kind = path.extension().and_then(|kind| kind.to_str());
        path.is_file() || kind.is_some_and(|kind| ["vec", "parquet"].contains(&kind))
    };
    arguments.names.len() == 2 && arguments.names.iter().any(is_files)
}

pub fn explain(arguments: &Explain) -> Result<()> {
    let [second, application] = [0, 1].map(|at| PathBuf::from(&arguments.names[at]));
    let (a, b) = (named(&arguments.file)?, named(&second)?);
    let application = vectors::application(&application)?;
    let on = arguments.on.as_deref().map(vectors::machine).transpose()?;
    let found = contrast::contrast(a, b, &application, on.as_ref())?;
    print(&found, arguments.format, |out| {
        prediction_text::contrast(out, &found, arguments.all, width())
    })
}
