//! `latlab analyze` alone, until the command `latlab` has it.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use latlab_analysis::command::{analyze, Analyze};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    analyze: Analyze,
}

fn main() -> ExitCode {
    match analyze(&Command::parse().analyze, &mut io::stdout().lock(), 110) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latlab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
