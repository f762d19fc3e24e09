// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hbench`: measures the operating system's primitives, and what they are made of.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod decomposing;
mod exit;
mod list;
mod measure;
mod options;
mod printing;
mod progress;
mod recording;
mod vector;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{ensure, Result};
use clap::CommandFactory;
use hbench_results::compare::compare;
use hbench_results::file::{self, Recorded};
use hbench_results::meta::State;
use hbench_results::{figures, hierarchy, text};
use kit_console::{manual, say};

use crate::exit::{FAILED, INTERRUPTED, WRONG};
use crate::options::{Cli, Compare, Explain, Format, Run, Show, Subcommand};
use crate::printing::{print, width};

fn main() -> ExitCode {
    kit_files::output::survive_file_limit();
    let cli = match kit_console::parse::<Cli>("hbench", FAILED) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let done = match cli.subcommand {
        Subcommand::Run(arguments) => run(&arguments),
        Subcommand::List(arguments) => list::list(&arguments.names).map(|()| 0),
        Subcommand::Show(arguments) => show(&arguments),
        Subcommand::Compare(arguments) => compare_two(&arguments),
        Subcommand::Explain(arguments) if vector::are_vectors(&arguments) => {
            vector::explain(&arguments).map(|()| 0)
        }
        Subcommand::Explain(arguments) => explain(&arguments),
        Subcommand::Vector(arguments) => vector::vector(&arguments).map(|()| 0),
        Subcommand::Calibrate(arguments) => vector::calibrate(&arguments).map(|()| 0),
        Subcommand::Predict(arguments) => vector::predict(&arguments).map(|()| 0),
        Subcommand::Calls(arguments) => {
            recording::call(arguments.count);
            Ok(0)
        }
        Subcommand::Decompose(arguments) => decomposing::decompose(&arguments),
        Subcommand::Describe(arguments) => {
            hbench::sample::describe(&arguments.directory).map(|()| 0)
        }
        Subcommand::Sample(arguments) => hbench::sample::sample(&arguments.job).map(|()| 0),
        Subcommand::Man(arguments) => manual::man(Cli::command(), &arguments)
            .map(|()| 0)
            .map_err(Into::into),
        Subcommand::Completions(arguments) => manual::completions(&mut Cli::command(), &arguments)
            .map(|()| 0)
            .map_err(Into::into),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            kit_console::say_error("hbench", &format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: &Run) -> Result<u8> {
    let (recorded, written) = measure::run(arguments)?;
    print_summary(&recorded, arguments.format)?;
    written?;
    if let Some(path) = &arguments.output {
        say!("hbench: every sample is in {}", path.display());
    }
    Ok(status(&recorded))
}

fn status(recorded: &Recorded) -> u8 {
    let has_wrong = recorded.meta.left_out.iter().any(|one| one.is_wrong);
    match recorded.meta.state {
        State::Interrupted => INTERRUPTED,
        _ if has_wrong => WRONG,
        _ => 0,
    }
}

fn show(arguments: &Show) -> Result<u8> {
    let mut recorded = file::read(&arguments.file)?;
    measure::narrow(&mut recorded, &arguments.names, &arguments.file)?;
    if let Some(html) = &arguments.html {
        decomposing::page(html, &recorded, &arguments.records)?;
    }
    print_summary(&recorded, arguments.format)?;
    Ok(0)
}

fn print_summary(recorded: &Recorded, format: Format) -> Result<()> {
    let summary = figures::summary(recorded);
    print(&summary, format, |out| {
        text::summary(out, &summary, width())
    })
}

fn compare_two(arguments: &Compare) -> Result<u8> {
    let [a, b] = match arguments.live {
        true => measure::live(arguments)?,
        false => [
            file::read(Path::new(&arguments.a))?,
            file::read(Path::new(&arguments.b))?,
        ],
    };
    let found = compare(&a, &b, arguments.live);
    print(&found, arguments.format, |out| {
        text::comparison(out, &found, arguments.all, width())
    })?;
    Ok(match arguments.live {
        true => status(&a).max(status(&b)),
        false => 0,
    })
}

fn explain(arguments: &Explain) -> Result<u8> {
    let recorded = file::read(&arguments.file)?;
    let mut found = hierarchy::explain(
        &figures::figures(&recorded),
        recorded.meta.environment.page_bytes,
    );
    let is_named = |own: &str| {
        let mut names = arguments.names.iter();
        arguments.names.is_empty() || names.any(|name| own.starts_with(name.as_str()))
    };
    found.nodes.retain(|node| is_named(&node.benchmark));
    ensure!(
        !found.nodes.is_empty(),
        "{} has no benchmark that is made of others which it has, too{}",
        arguments.file.display(),
        if arguments.names.is_empty() {
            ""
        } else {
            ", under these names"
        }
    );
    print(&found, arguments.format, |out| {
        text::explanation(out, &found.nodes, width())
    })?;
    Ok(0)
}
