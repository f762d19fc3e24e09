// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of the CPU that depend on each other.

use crate::arithmetic;
use crate::benchmark::Benchmark;

pub const BENCHMARK: Benchmark = Benchmark {
    name: "cpu.operation",
    group: "cpu",
    operation: "one operation whose operand is the result of the one before it",
    variants: &[
        "integer-add",
        "integer-multiply",
        "integer-divide",
        "double-add",
        "double-multiply",
        "double-divide",
    ],
    by_name: &[
        "integer-bit",
        "integer-modulo",
        "integer32-bit",
        "integer32-add",
        "integer32-multiply",
        "integer32-divide",
        "integer32-modulo",
        "float-add",
        "float-multiply",
        "float-divide",
        "function-call",
    ],
    depends_on: &["CPU clock"],
    answers_to: &[
        "lmbench lat_ops (integer32 is its integer, integer its int64)",
        "lmbench mhz (an integer-add is a cycle)",
        "lmbench lat_proc procedure (function-call)",
        "LEBench cpu (double-divide)",
        "UnixBench arithmetic (parts)",
    ],
    verified_by: "the compiler may not leave any out (black_box)",
    measure: arithmetic::measure::<1>,
};
