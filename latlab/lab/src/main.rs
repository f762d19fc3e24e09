//! `latlab`: finds out where the latency of an HTTP server comes from.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod capacity;
mod compare;
mod conform;
mod exit;
mod hot_cold;
mod options;
mod output;
mod plan;
mod procedure;
mod profile;
mod progress;
mod study;
mod sweep;

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use kit_console::{manual, printable, say, Allowed};
use latlab::fileset::{self, FileSet};
use latlab::programmed::{self, Program};
use latlab::recover::{self, recover};
use latlab::rows::remove_leftover;
use latlab::{confine, servers, units, worker};

use crate::exit::{FAILED, NOT_VALID};
use crate::options::{Cli, Create, Fileset, Format, Recover, Run, Server, Servers, Subcommand};
use crate::progress::Progress;

fn main() -> ExitCode {
    kit_files::output::survive_file_limit();
    let cli = match kit_console::parse::<Cli>("latlab", FAILED) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let done = match cli.subcommand {
        Subcommand::Fileset(Fileset::Create(arguments)) => create(&arguments),
        Subcommand::Run(arguments) => load(&arguments),
        Subcommand::Capacity(arguments) => capacity::capacity(&arguments),
        Subcommand::Profile(arguments) => profile::profile(&arguments),
        Subcommand::Conform(arguments) => conform::conform(&arguments),
        Subcommand::Compare(arguments) => compare::compare(&arguments),
        Subcommand::Sweep(arguments) => sweep::sweep(&arguments),
        Subcommand::Recover(arguments) => recover_left(&arguments),
        Subcommand::Study(arguments) => study::study(&arguments),
        Subcommand::HotCold(arguments) => hot_cold::hot_cold(&arguments),
        Subcommand::Analyze(arguments) => analyze(&arguments),
        Subcommand::Disk(arguments) => latlab_disk::run(arguments).map(|()| 0),
        Subcommand::Servers(arguments) => list_servers(&arguments),
        Subcommand::Server(arguments) => serve(arguments),
        Subcommand::Worker => worker::work().map(|()| 0),
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
            kit_console::say_error("latlab", &format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

fn create(arguments: &Create) -> Result<u8> {
    let bytes = match (arguments.size, arguments.for_connections) {
        (Some(size), _) => size,
        (None, connections) => fileset::bytes_for_connections(connections.unwrap_or(0)),
    };
    let set = FileSet {
        seed: arguments.seed,
        directories: fileset::directories_for(bytes),
    };
    let progress = Progress::bytes(set.bytes());
    let created = fileset::create(&arguments.directory, set, |done| progress.set(done, ""))?;
    progress.end();
    output::line(&format!(
        "{}: {} files written ({}), {} were there",
        arguments.directory.display(),
        units::count(created.written),
        units::bytes(created.bytes),
        units::count(created.kept)
    ))?;
    Ok(0)
}

fn load(arguments: &Run) -> Result<u8> {
    let ready = plan::ready(
        &arguments.target,
        &arguments.what,
        arguments.record.as_deref(),
    )?;
    let plan = plan::of_run(&ready, arguments)?;
    let summary = procedure::run_once(&plan)?;
    match arguments.format {
        Format::Json => output::json(&summary)?,
        Format::Text => {
            let text = summary.text(arguments.output.as_deref());
            output::text(|out| out.write_all(text.as_bytes()))?;
        }
    }
    Ok(if summary.refused.is_some() {
        NOT_VALID
    } else {
        0
    })
}

fn recover_left(arguments: &Recover) -> Result<u8> {
    if let (Some(spool), Some(output)) = (&arguments.spool, &arguments.output) {
        return recover_rows(spool, output, arguments);
    }
    // Servers first: this frees their control groups and disks.
    let mut done = servers::remove_left();
    done.extend(confine::remove_left());
    done.extend(study::remove_left(&arguments.place));
    done.extend(remove_leftover());
    if done.is_empty() {
        done.push("nothing is left of a killed latlab".to_string());
    }
    for sentence in done {
        output::line(&sentence)?;
    }
    Ok(0)
}

fn recover_rows(spool: &Path, output: &Path, arguments: &Recover) -> Result<u8> {
    let options = recover::Options {
        keep: arguments.keep,
        despite_damage: arguments.despite_damage,
    };
    let recovered = recover(spool, output, options)?;
    for left_out in &recovered.left_out {
        say!("latlab: {left_out}");
    }
    let planned = recovered.duration_ns.map_or(String::new(), |ns| {
        format!(" of a run that was to take {}", units::time(ns))
    });
    output::line(&format!(
        "{}: {} requests, {} of them failed, from the first {}{planned}",
        output.display(),
        units::count(recovered.rows),
        units::count(recovered.failures),
        units::time(recovered.last_ns)
    ))?;
    Ok(0)
}

fn analyze(arguments: &latlab_analysis::command::Analyze) -> Result<u8> {
    let width = output::terminal_width().unwrap_or(110);
    let mut printed = Vec::new();
    latlab_analysis::command::analyze(arguments, &mut printed, width)?;
    let allowed = match arguments.format {
        latlab_analysis::command::Format::Json => Allowed::Json,
        latlab_analysis::command::Format::Text => Allowed::Text,
    };
    kit_console::print(allowed, |out| out.write_all(&printed))?;
    Ok(0)
}

fn list_servers(arguments: &Servers) -> Result<u8> {
    let known = servers::known(arguments.servers.as_deref())?;
    output::text(|out| {
        for server in known {
            let missing = match server.program() {
                Some(_) => "",
                None => " (not installed)",
            };
            let (name, about) = (printable(&server.name), printable(&server.about));
            writeln!(out, "{name:<16} {about}{missing}")?;
            let parameters: Vec<String> = server
                .parameters
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            if !parameters.is_empty() {
                writeln!(out, "{:<16} {}", "", printable(&parameters.join(", ")))?;
            }
        }
        Ok(())
    })?;
    Ok(0)
}

fn serve(arguments: Server) -> Result<u8> {
    latlab::sys::raise_descriptors().context("cannot ask for the number of descriptors")?;
    let listener = TcpListener::bind(&arguments.listen)
        .with_context(|| format!("cannot listen at {}", arguments.listen))?;
    output::line(&format!("listening at {}", listener.local_addr()?))?;
    let set = FileSet {
        seed: arguments.seed,
        directories: 1,
    };
    let program = Program {
        service: arguments.service,
        faults: arguments.fault,
        serial: arguments.serial,
        set,
    };
    programmed::serve(&listener, program)?;
    Ok(0)
}
