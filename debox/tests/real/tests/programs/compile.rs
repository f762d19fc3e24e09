// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C compile: a driver that only waits for its children, and a compiler that only computes.

use std::fmt::Write;

use debox_real::bare;
use debox_real::require;
use debox_real::take_turn;
use debox_real::Tap;
use debox_tests::Scratch;

/// Enough for a compiler to think about for half a second.
const FUNCTIONS: usize = 120;

fn source() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for number in 0..FUNCTIONS {
        let bit = 1 << (number % 20);
        writeln!(
            text,
            "int mix{number}(const int *v, int n) {{\n\
             \tint sum = {number};\n\
             \tfor (int i = 0; i < n; i++) {{\n\
             \t\tsum ^= v[i] * {number};\n\
             \t\tif (sum & {bit}) sum += v[(i + {number}) % n];\n\
             \t\tswitch (sum % 7) {{ case 1: sum *= 3; break; case 2: sum -= i; break; \
             case 5: sum <<= 2; break; default: sum++; }}\n\
             \t}}\n\
             \treturn sum;\n}}"
        )
        .expect("a string takes what it is given");
    }
    text
}

fn compile(tap: Tap) {
    let _turn = take_turn();
    if !tap.works("gcc_waits_for_cc1") {
        return;
    }
    let gcc = require("gcc").display().to_string();
    let scratch = Scratch::new();
    std::fs::write(scratch.file("mix.c"), source()).expect("scratch directory is writable");
    let command = |name: &str| {
        let path = |name: &str| scratch.file(name).display().to_string();
        [
            gcc.clone(),
            "-O2".into(),
            "-c".into(),
            path("mix.c"),
            "-o".into(),
            path(name),
        ]
    };
    bare(&command("bare.o"), scratch.path());
    let story = tap.run(&command("debox.o"));

    let read = |name| std::fs::read(scratch.file(name)).expect("gcc made an object file");
    assert!(read("bare.o") == read("debox.o"), "the object files differ");
    story.at_least(
        80,
        story.thread_sum("cc1", "user_cpu_ns"),
        story.cpu_ns(),
        "cc1 computes",
    );
    if tap == Tap::Kernel {
        let (lived, asleep) = (
            story.thread_sum("gcc", "wall_ns"),
            story.thread_sum("gcc", "blocked_ns"),
        );
        story.at_least(80, asleep, lived, "the driver waits");
        let children = story.labelled("wait4", "child process");
        story.at_least(
            90,
            children.blocked_ns,
            asleep,
            "the driver waits for its children",
        );
        assert!(
            story.woke("cc1", "child process") > 0,
            "{:#}",
            story.run.report["sleeps"]
        );
        // The driver goes on when its child has executed or ended, and not before.
        assert!(story.run.call("vfork").number("calls") >= 2);
        assert!(story.slept(Some("vfork"), |_| true).blocked_ns > 0);
    }
}

#[test]
fn gcc_waits_for_cc1() {
    compile(Tap::Kernel);
}

#[test]
fn gcc_waits_for_cc1_user_tap() {
    compile(Tap::User);
}
