// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short programs with the branches, calls and accesses to memory that programs consist of. Chains of one operation
//! hide what a CPU, or a program that emulates one, needs for these.

use std::hint::black_box;

use crate::benchmark::{verify, Benchmark, Failure};
use crate::sampler::{Measured, Sampler};

pub const BENCHMARK: Benchmark = Benchmark {
    name: "cpu.code",
    group: "cpu",
    operation: "a step of a program: calling one of 256 functions, counting a byte's word, interpreting an \
                instruction, or sorting a number (heapsort of 1,024)",
    variants: &["calls", "words", "interpret", "sort"],
    by_name: &[],
    depends_on: &["cpu.operation", "memory.latency"],
    answers_to: &["UnixBench dhry2reg (in kind)"],
    verified_by: "the results are those of a second way to compute them",
    measure,
};

/// Of each program's data: they fit into the first cache of most CPUs.
const NUMBERS: usize = 1024;
const TEXT: usize = 8 << 10;
/// Counters of words.
const PLACES: usize = 512;

fn measure(sampler: &mut Sampler, variant: &str) -> Result<Measured, Failure> {
    match variant {
        "calls" => calls(sampler),
        "words" => words(sampler),
        "interpret" => interpret(sampler),
        _ => sort(sampler),
    }
}

/// Numbers that look random and are the same in every run.
fn numbers() -> impl Iterator<Item = u32> {
    let mut state = 18u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    })
}

type Function = fn(u64) -> u64;

/// One of many functions that differ only in their constant, so each has code of its own.
#[inline(never)]
fn function<const N: u64>(x: u64) -> u64 {
    let turned = x.rotate_left(N as u32 % 63 + 1) ^ N.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    match turned & 3 {
        0 => turned.wrapping_add(N),
        1 => turned ^ (x >> 7),
        2 => turned.wrapping_mul(2 * N + 1),
        _ => turned.wrapping_sub(x),
    }
}

/// Four arrays, or functions, of which the numbers begin with that of the array.
macro_rules! four {
    ($number:expr,) => { function::<{ $number }> as Function };
    ($number:expr, $level:tt $($levels:tt)*) => {[
        four!(4 * ($number), $($levels)*),
        four!(4 * ($number) + 1, $($levels)*),
        four!(4 * ($number) + 2, $($levels)*),
        four!(4 * ($number) + 3, $($levels)*),
    ]};
}

static FUNCTIONS: [[[[Function; 4]; 4]; 4]; 4] = four!(0, a b c d);

fn calls(sampler: &mut Sampler) -> Result<Measured, Failure> {
    let functions = FUNCTIONS.as_flattened().as_flattened().as_flattened();
    let order: Vec<u8> = numbers().take(NUMBERS).map(|number| number as u8).collect();
    let once = |order: &[u8]| {
        order
            .iter()
            .fold(1u64, |x, one| functions[usize::from(*one)](x))
    };
    let wanted = once(&order);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            let found = once(black_box(&order));
            verify(found == wanted, || format!("{found}, not {wanted}"))?;
        }
        Ok(())
    })?;
    Ok(measured.times(NUMBERS as u64))
}

fn words(sampler: &mut Sampler) -> Result<Measured, Failure> {
    // Words of one to eight letters.
    let letters = numbers().take(TEXT).map(|number| match number % 5 {
        0 => b' ',
        _ => b'a' + (number >> 8) as u8 % 6,
    });
    let text: Vec<u8> = letters.collect();
    let wanted = text
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let wanted = wanted.count() as u32;
    let mut places = [0u32; PLACES];
    let measured = sampler.time(|n| {
        for _ in 0..n {
            places.fill(0);
            count(black_box(&text), &mut places);
            let found: u32 = places.iter().sum();
            verify(found == wanted, || {
                format!("{found} words instead of {wanted}")
            })?;
        }
        Ok(())
    })?;
    Ok(measured.times(TEXT as u64))
}

/// Counts the words by their hashes.
fn count(text: &[u8], places: &mut [u32; PLACES]) {
    const START: u32 = 2_166_136_261;
    let mut hash = START;
    let mut end = |hash: &mut u32| {
        if *hash != START {
            places[*hash as usize % PLACES] += 1;
            *hash = START;
        }
    };
    for byte in text {
        match byte {
            b' ' => end(&mut hash),
            letter => hash = (hash ^ u32::from(*letter)).wrapping_mul(16_777_619),
        }
    }
    end(&mut hash);
}

/// An instruction of a machine with four registers.
#[derive(Debug, Clone, Copy)]
enum Code {
    Set(u8, u32),
    Add(u8, u8),
    Multiply(u8, u8),
    Mix(u8, u8),
    Store(u8),
    Load(u8),
    Less(u8, u32),
    /// Where to go on if the last comparison was true.
    Jump(u8),
    End,
}

/// Computes a sum of 100 numbers of a linear congruence, with every number once in memory.
const PROGRAM: [Code; 12] = [
    Code::Set(0, 0),
    Code::Set(1, 7),
    Code::Set(2, 0),
    Code::Set(3, 1_664_525),
    Code::Multiply(1, 3),
    Code::Mix(1, 0),
    Code::Store(1),
    Code::Load(1),
    Code::Add(2, 1),
    Code::Less(0, 100),
    Code::Jump(4),
    Code::End,
];

/// The value of register 2, and how many instructions there were.
fn run(program: &[Code]) -> (u32, u64) {
    let mut registers = [0u32; 4];
    let mut memory = [0u32; 64];
    let (mut at, mut steps, mut is_less) = (0usize, 0u64, false);
    let slot = |register: u8| usize::from(register) % 4;
    while let Some(code) = program.get(at) {
        at += 1;
        steps += 1;
        match *code {
            Code::Set(to, value) => registers[slot(to)] = value,
            Code::Add(to, from) => {
                registers[slot(to)] = registers[slot(to)].wrapping_add(registers[slot(from)]);
            }
            Code::Multiply(to, by) => {
                registers[slot(to)] = registers[slot(to)].wrapping_mul(registers[slot(by)]);
            }
            Code::Mix(to, from) => registers[slot(to)] ^= registers[slot(from)] << 3,
            Code::Store(from) => memory[registers[0] as usize % 64] = registers[slot(from)],
            Code::Load(to) => registers[slot(to)] = memory[registers[0] as usize % 64],
            Code::Less(one, end) => {
                registers[slot(one)] += 1;
                is_less = registers[slot(one)] < end;
            }
            Code::Jump(to) if is_less => at = usize::from(to),
            Code::Jump(_) => {}
            Code::End => break,
        }
    }
    (registers[2], steps)
}

fn interpret(sampler: &mut Sampler) -> Result<Measured, Failure> {
    let mut number = 7u32;
    let mut wanted = 0u32;
    for index in 0..100u32 {
        number = number.wrapping_mul(1_664_525) ^ (index << 3);
        wanted = wanted.wrapping_add(number);
    }
    let (_, steps) = run(&PROGRAM);
    let measured = sampler.time(|n| {
        for _ in 0..n {
            let (found, _) = run(black_box(&PROGRAM));
            verify(found == wanted, || format!("{found}, not {wanted}"))?;
        }
        Ok(())
    })?;
    Ok(measured.times(steps))
}

fn sort(sampler: &mut Sampler) -> Result<Measured, Failure> {
    let unsorted: Vec<u32> = numbers().take(NUMBERS).collect();
    let mut wanted = unsorted.clone();
    wanted.sort_unstable();
    let mut sorted = unsorted.clone();
    let measured = sampler.time(|n| {
        for _ in 0..n {
            sorted.copy_from_slice(black_box(&unsorted));
            heapsort(&mut sorted);
            verify(sorted == wanted, || "they are in no order".to_string())?;
        }
        Ok(())
    })?;
    Ok(measured.times(NUMBERS as u64))
}

/// The library's sort has few branches.
fn heapsort(numbers: &mut [u32]) {
    fn sink(heap: &mut [u32], mut parent: usize) {
        loop {
            let mut child = 2 * parent + 1;
            if child >= heap.len() {
                return;
            }
            if child + 1 < heap.len() && heap[child + 1] > heap[child] {
                child += 1;
            }
            if heap[parent] >= heap[child] {
                return;
            }
            heap.swap(parent, child);
            parent = child;
        }
    }
    for parent in (0..numbers.len() / 2).rev() {
        sink(numbers, parent);
    }
    for end in (1..numbers.len()).rev() {
        numbers.swap(0, end);
        sink(&mut numbers[..end], 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_its_own() {
        let functions = FUNCTIONS.as_flattened().as_flattened().as_flattened();
        assert_eq!(functions.len(), 256);
        let mut results: Vec<u64> = functions.iter().map(|one| one(12_345)).collect();
        results.sort_unstable();
        results.dedup();
        assert!(results.len() > 250, "{}", results.len());
    }

    #[test]
    fn a_heap_sorts() {
        for length in 0..100 {
            let mut sorted: Vec<u32> = numbers().take(length).map(|number| number % 50).collect();
            let mut wanted = sorted.clone();
            wanted.sort_unstable();
            heapsort(&mut sorted);
            assert_eq!(sorted, wanted);
        }
    }
}
