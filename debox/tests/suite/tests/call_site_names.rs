// SPDX-License-Identifier: MIT OR Apache-2.0
//! What call sites are called: C functions whose names look like something else, and functions of which
//! the compiler put a part elsewhere.

use std::path::Path;
use std::process::Command;

use debox_tests::Debox;
use debox_tests::Scratch;
use serde_json::Value;

const PARTS: &str = include_str!("../../truth/callers/parts.c");

/// Runs a tool and returns what it prints.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Compiles parts.c.
fn build(scratch: &Scratch, flags: &[&str]) {
    std::fs::write(scratch.file("parts.c"), PARTS).expect("scratch directory is writable");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer"]).args(flags);
    output(
        compiler
            .args(["-o", "parts", "parts.c"])
            .current_dir(scratch.path()),
    );
}

/// The call sites of the program's sleeps: where it called libc, and the frame of the program's own.
fn sleeps(program: &Path) -> Vec<(Vec<String>, String)> {
    let run = Debox::command(program)
        .options(["--detail", "callsites"])
        .report();
    let rows = run.report["sleeps"].as_array().expect("a table").iter();
    let timers = rows.filter(|row| row["syscall"] == "clock_nanosleep");
    let sites = timers.flat_map(|row| row["call_sites"].as_array().expect("a list").clone());
    let text = |value: &Value| value.as_str().expect("text").to_string();
    sites
        .map(|site| {
            let frames = site["frames"].as_array().expect("frames");
            (frames.iter().map(text).collect(), text(&site["caller"]))
        })
        .collect()
}

/// How far from the symbol's begin the call of nanosleep returns to, according to the disassembler.
fn offset_of_sleep(program: &Path, symbol: &str) -> String {
    let code = output(
        Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", "-w"])
            .arg(program),
    );
    let begins = format!(" <{symbol}>:");
    let mut lines = code.lines().skip_while(|line| !line.ends_with(&begins));
    let address = |line: &str| {
        let digits = line.trim_start().split([':', ' ']).next();
        u64::from_str_radix(digits.unwrap_or_default(), 16).expect("an address")
    };
    let begin = address(lines.next().expect("the symbol is in the program"));
    let mut lines = lines.skip_while(|line| !line.contains("<nanosleep@plt>"));
    lines.next().expect("it calls nanosleep");
    let after = address(lines.next().expect("an instruction after the call"));
    format!("+{:#x} ", after - begin)
}

#[track_caller]
fn short_names_stay(flags: &[&str]) {
    let scratch = Scratch::new();
    build(&scratch, flags);
    let sleeps = sleeps(&scratch.file("parts"));
    for name in ["i", "St", "Sa", "PKc"] {
        let begin = format!("{name}+0x");
        let called = sleeps
            .iter()
            .filter(|(_, caller)| caller.starts_with(&begin));
        assert_eq!(called.count(), 1, "{name}: {sleeps:#?}");
    }
}

#[test]
fn names_of_c_functions_are_no_mangled_types() {
    short_names_stay(&["-g"]);
}

#[test]
fn names_of_c_functions_are_no_mangled_types_without_debug_information() {
    short_names_stay(&[]);
}

/// `split.cold` is at a lower address than `split` and other functions are between them.
#[test]
fn offsets_are_from_the_begin_of_the_part_that_the_address_is_in() {
    let scratch = Scratch::new();
    build(&scratch, &["-g"]);
    let program = scratch.file("parts");
    let hot = format!("split{}", offset_of_sleep(&program, "split"));
    let cold = offset_of_sleep(&program, "split.cold");
    let is_there = |sleeps: &[(Vec<String>, String)], begin: &str| {
        let mut frames = sleeps.iter().flat_map(|(frames, _)| frames);
        frames.any(|frame| frame.starts_with(begin))
    };
    let seen = sleeps(&program);
    for wanted in [&hot, &format!("split.cold{cold}")] {
        assert!(is_there(&seen, wanted), "{wanted}: {seen:#?}");
    }

    // Without the symbols the unwinding tables tell of the parts.
    output(
        Command::new("objcopy")
            .args(["-N", "split", "-N", "split.cold"])
            .arg(&program),
    );
    let seen = sleeps(&program);
    for wanted in [&hot, &format!("split{cold}")] {
        assert!(is_there(&seen, wanted), "{wanted}: {seen:#?}");
    }
}
