//! `debox`: shows where every nanosecond of a program's system calls went.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attach;
mod broker;
mod command;
mod doctor;
mod exit;
#[cfg(feature = "recordings")]
mod export;
mod following;
mod guard;
mod options;
mod output;
mod preload;
mod price;
#[cfg(feature = "recordings")]
mod record;
#[cfg(feature = "recordings")]
mod report;
mod run;
mod table;
mod tappable;
mod task_name;
mod top;

use std::process::ExitCode;

use clap::CommandFactory;
use kit_console::manual;
use kit_units as units;

use crate::exit::FAILED;
use crate::options::{Cli, Subcommand};

fn main() -> ExitCode {
    kit_files::output::survive_file_limit();
    let cli = match kit_console::parse::<Cli>("debox", FAILED) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let done = match cli.subcommand {
        Subcommand::Run(arguments) => run::run(arguments),
        Subcommand::Attach(arguments) => attach::attach(arguments),
        #[cfg(feature = "recordings")]
        Subcommand::Record(arguments) => record::record(arguments),
        Subcommand::Guard(arguments) => guard::guard(arguments),
        Subcommand::Top(arguments) => top::top(arguments),
        #[cfg(feature = "recordings")]
        Subcommand::Report(arguments) => report::report(arguments),
        #[cfg(feature = "recordings")]
        Subcommand::Repair(arguments) => record::repair(&arguments),
        #[cfg(feature = "recordings")]
        Subcommand::Export(arguments) => export::export(arguments),
        #[cfg(not(feature = "recordings"))]
        Subcommand::Record(_) => Err(anyhow::anyhow!(
            "this debox was built without recordings, as `make demo` does; `make build` builds all subcommands"
        )),
        Subcommand::Broker(arguments) => broker::broker(arguments),
        Subcommand::Doctor(arguments) => doctor::doctor(arguments),
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
            let error = debox::kernel::name_the_limit(error);
            kit_console::say_error("debox", &format!("{error:#}"));
            let status = error
                .downcast_ref::<command::CannotStart>()
                .map(|cannot| cannot.status());
            ExitCode::from(status.unwrap_or(FAILED))
        }
    }
}
