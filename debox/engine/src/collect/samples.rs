//! Sums samples by function and by stack.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Snapshot;
use crate::calls;
use crate::explain::{Explainer, UserStack};
use crate::frame::{Frame, Kind};
use crate::report::{SampledFunction, SampledStack, Samples};
use crate::samples::PERIOD_NS;
use crate::tables::{self, CALL_NONE};

/// The most rows of each kind in a report.
const FUNCTIONS: usize = 200;
const STACKS: usize = 1000;

/// The name of a frame's function in a row of functions; `None` if it is not known what was mapped there.
fn name_of(frame: &Frame) -> Option<String> {
    match place_of(frame) {
        Some(_) => Some(frame.function.clone()),
        None if frame.function.starts_with("0x") => None,
        None => Some(format!("{} (no symbols)", frame.function)),
    }
}

/// The line, the module, or how the code was made.
fn place_of(frame: &Frame) -> Option<&str> {
    match frame.kind {
        Kind::Made => Some("jit"),
        _ => frame.place.as_deref(),
    }
}

/// The file, by which functions with the same name are distinguished.
fn file_of(frame: &Frame) -> Option<&str> {
    let place = place_of(frame)?;
    Some(place.rsplit_once(':').map_or(place, |(file, _)| file))
}

/// The frame as it is listed: wherever in the function it was, and whether or not that was inlined.
fn listed(frame: &Frame) -> Frame {
    Frame {
        kind: match frame.kind {
            Kind::Inlined => Kind::Function,
            kind => kind,
        },
        ..frame.without_offset()
    }
}

/// Samples of one of the program's own functions.
#[derive(Default)]
struct Sum {
    samples: u64,
    in_calls: u64,
    places: HashMap<String, u64>,
    /// By the library function, or the call.
    inside: HashMap<String, u64>,
}

impl Snapshot {
    pub(super) fn sampled(&self, explainer: &Explainer) -> Option<Samples> {
        let taken = self.samples.as_ref()?;
        let comms = self.threads.iter().map(|thread| (thread.tid, thread));
        let comms: HashMap<u32, _> = comms.collect();
        let mut named: HashMap<u32, UserStack> = HashMap::new();
        let mut functions: HashMap<(String, Option<String>), Sum> = HashMap::new();
        let mut stacks: HashMap<SampledStack, u64> = HashMap::new();
        let mut samples = Samples {
            period_ns: PERIOD_NS,
            in_interrupts: taken.in_interrupts,
            lost: taken.lost,
            ..Samples::default()
        };
        for (place, count) in &taken.places {
            let is_in_call = place.call != CALL_NONE;
            let call = calls::name(place.call);
            let stack = named
                .entry(place.stack)
                .or_insert_with(|| explainer.sampled_stack(place.stack));
            samples.total += count;
            samples.in_calls += if is_in_call { *count } else { 0 };
            let comm = comms.get(&place.tid);
            let listed = SampledStack {
                comm: comm.map_or_else(String::new, |thread| tables::comm(&thread.comm)),
                syscall: call.clone(),
                frames: stack.frames.iter().map(listed).collect(),
                samples: 0,
            };
            *stacks.entry(listed).or_default() += count;
            let Some(innermost) = stack.frames.first() else {
                continue;
            };
            let own = stack.caller.as_ref().unwrap_or(innermost);
            let Some(name) = name_of(own) else { continue };
            let key = (name, file_of(own).map(String::from));
            let sum = functions.entry(key).or_default();
            sum.samples += count;
            if let Some(place) = place_of(own) {
                *sum.places.entry(place.to_string()).or_default() += count;
            }
            if is_in_call {
                sum.in_calls += count;
                *sum.inside.entry(call).or_default() += count;
                continue;
            }
            let leaf = &innermost.function;
            if *leaf != own.function {
                *sum.inside.entry(leaf.clone()).or_default() += count;
            }
        }
        let functions = functions
            .into_iter()
            .map(|((function, _), sum)| sum.named(function));
        samples.functions = functions.collect();
        samples.functions.sort_by(|a, b| {
            (Reverse(a.samples), &a.function).cmp(&(Reverse(b.samples), &b.function))
        });
        samples.functions.truncate(FUNCTIONS);
        samples.stacks = stacks
            .into_iter()
            .map(|(stack, samples)| SampledStack { samples, ..stack })
            .collect();
        samples
            .stacks
            .sort_by(|a, b| (Reverse(a.samples), &a.frames).cmp(&(Reverse(b.samples), &b.frames)));
        let further = samples.stacks.iter().skip(STACKS);
        samples.in_further_stacks = further.map(|stack| stack.samples).sum();
        samples.stacks.truncate(STACKS);
        Some(samples)
    }
}

impl Sum {
    fn named(self, function: String) -> SampledFunction {
        let most = |counts: HashMap<String, u64>| {
            let order = |(name, count): &(String, u64)| (*count, Reverse(name.clone()));
            counts.into_iter().max_by_key(order)
        };
        let inside = most(self.inside).filter(|(_, count)| *count > self.samples / 2);
        SampledFunction {
            function,
            place: most(self.places).map(|(place, _)| place),
            samples: self.samples,
            in_calls: self.in_calls,
            inside: inside.map(|(name, _)| name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_without_its_offset_is_a_function_and_a_place() {
        for (frame, function, place, as_listed) in [
            (
                "fill+0x1f (matrix.c:31)",
                "fill",
                Some("matrix.c:31"),
                "fill (matrix.c:31)",
            ),
            (
                "fill (inlined) (matrix.c:31)",
                "fill",
                Some("matrix.c:31"),
                "fill (matrix.c:31)",
            ),
            (
                "fill+0x1f (program)",
                "fill",
                Some("program"),
                "fill (program)",
            ),
            ("libz.so.1+0x4210", "libz.so.1", None, "libz.so.1"),
            (
                "JS:^answer /app/server.js:2:23+0x3 (jit)",
                "JS:^answer /app/server.js:2:23",
                Some("jit"),
                "JS:^answer /app/server.js:2:23 (jit)",
            ),
            (
                "main.(*T).run+0x9 (main.go:7)",
                "main.(*T).run",
                Some("main.go:7"),
                "main.(*T).run (main.go:7)",
            ),
            (
                "operator+(A, B)+0x4 (a.cc:2)",
                "operator+(A, B)",
                Some("a.cc:2"),
                "operator+(A, B) (a.cc:2)",
            ),
            (
                "(further frames: 64 are kept)",
                "(further frames: 64 are kept)",
                None,
                "(further frames: 64 are kept)",
            ),
        ] {
            let frame = Frame::from(frame);
            assert_eq!(
                (frame.function.as_str(), place_of(&frame)),
                (function, place)
            );
            assert_eq!(listed(&frame).to_string(), as_listed);
        }
        let file = |text: &str| file_of(&Frame::from(text)).map(String::from);
        assert_eq!(file("fill+0x1f (matrix.c:31)").as_deref(), Some("matrix.c"));
        assert_eq!(file("fill+0x1f (program)").as_deref(), Some("program"));
        let name = |text: &str| name_of(&Frame::from(text));
        assert_eq!(name("fill+0x1f (program)").as_deref(), Some("fill"));
        assert_eq!(name("gzip+0x4210").as_deref(), Some("gzip (no symbols)"));
        assert_eq!(name("0x7f0ddec3c409"), None);
    }
}
