// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards each program of the corpus several times and prints a table.

use std::process::ExitCode;

use clap::Parser;
use debox_loops::CORPUS;
use debox_real::Programs;

/// Guards event loops of six runtimes, half of which block, several times each, and says how often the guard was
/// right. Needs root.
#[derive(Parser)]
struct Arguments {
    /// Only programs with this in their runtime and name, as in "tokio saves"
    #[arg(long, default_value = "")]
    only: String,
    /// How often each one runs
    #[arg(long, default_value_t = 10)]
    times: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let programs = Programs::default();
    let (mut right, mut all) = (0, 0);
    println!("| runtime | what it does | blocks in | right | of |");
    println!("|---|---|---|---|---|");
    let only = arguments.only.to_lowercase();
    let mut wrong = Vec::new();
    for case in CORPUS {
        if !case.name().to_lowercase().contains(&only) {
            continue;
        }
        let mut well = 0;
        for _ in 0..arguments.times {
            let guarded = case.guard(&programs);
            match guarded.and_then(|guarded| case.judge(&guarded)) {
                Ok(()) => well += 1,
                Err(what) => wrong.push(format!("{}: {what}", case.name())),
            }
        }
        right += well;
        all += arguments.times;
        let calls = match case.is_honest() {
            true => "-".to_string(),
            false => case.blocks_in.join(" or "),
        };
        let of = arguments.times;
        println!(
            "| {:?} | {} | {calls} | {well} | {of} |",
            case.runtime, case.what
        );
    }
    println!("\n{right} of {all} right");
    for what in &wrong {
        println!("\n{what}");
    }
    match wrong.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
