// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the corpus in every way and prints the documentation's table of results.

use std::process::ExitCode;

use clap::Parser;
use debox_causes::{judge, Case, Headlined, Way, CORPUS, WAYS};
use debox_real::Programs;

/// Measures each program with a planted cause, by `run`, `record` and `attach`, and says whether the headline
/// named it. Needs root.
#[derive(Parser)]
struct Arguments {
    /// Only programs with this in their name
    #[arg(long, default_value = "")]
    only: String,
    /// Only one way: run, record or attach
    #[arg(long)]
    way: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ways = WAYS.into_iter().filter(|way| {
        let only = arguments.way.as_deref();
        only.is_none_or(|only| only == name(*way))
    });
    let ways: Vec<Way> = ways.collect();
    let programs = Programs::default();
    let heads = ways.iter().map(|way| format!(" {} |", name(*way)));
    println!(
        "| program | planted |{} what the report said first |",
        heads.collect::<String>()
    );
    println!("|---|---|{}---|", "---|".repeat(ways.len()));
    let (mut named, mut all) = (0, 0);
    for case in CORPUS
        .iter()
        .filter(|case| case.program.contains(&arguments.only))
    {
        let mut cells = String::new();
        let mut sentence = String::new();
        for way in &ways {
            let (is_named, said) = result(case, *way, &programs);
            all += 1;
            named += u32::from(is_named);
            cells.push_str(if is_named { " yes |" } else { " **no** |" });
            if sentence.is_empty() || !is_named {
                sentence = said;
            }
        }
        println!(
            "| {} | {} |{cells} {sentence} |",
            case.program, case.planted
        );
    }
    println!("\n{named} of {all} named");
    match named == all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Run => "run",
        Way::Record => "record",
        Way::Attach => "attach",
    }
}

fn result(case: &Case, way: Way, programs: &Programs) -> (bool, String) {
    match case.measure(way, programs) {
        Err(error) => (false, error),
        Ok(it) => match judge(case, &it) {
            Err(what) => (false, what),
            Ok(()) => {
                let Headlined { sentence, .. } = it;
                (true, sentence)
            }
        },
    }
}
