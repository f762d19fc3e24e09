//! Sums samples by function and by stack.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Snapshot;
use crate::calls;
use crate::explain::{Explainer, UserStack};
use crate::report::{SampledFunction, SampledStack, Samples};
use crate::samples::PERIOD_NS;
use crate::tables::{self, CALL_NONE};

/// The most rows of each kind in a report.
const FUNCTIONS: usize = 200;
const STACKS: usize = 1000;

/// A frame without its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place<'a> {
    function: &'a str,
    /// `file.c:123`, or the module.
    at: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn of(frame: &'a str) -> Place<'a> {
        let (name, at) = match frame
            .strip_suffix(')')
            .and_then(|rest| rest.rsplit_once(" ("))
        {
            Some((name, at)) if !name.is_empty() => (name, Some(at)),
            _ => (frame, None),
        };
        let function = match name.rsplit_once("+0x") {
            Some((function, offset)) if offset.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                function
            }
            _ => name,
        };
        let function = function.strip_suffix(" (inlined)").unwrap_or(function);
        Place { function, at }
    }

    /// The name in a row of functions; `None` if it is not known what was mapped there.
    fn name(&self) -> Option<String> {
        match self.at {
            Some(_) => Some(self.function.to_string()),
            None if self.function.starts_with("0x") => None,
            None => Some(format!("{} (no symbols)", self.function)),
        }
    }

    /// The file, by which functions with the same name are distinguished.
    fn file(&self) -> Option<&'a str> {
        let at = self.at?;
        Some(at.rsplit_once(':').map_or(at, |(file, _)| file))
    }

    fn to_frame(self) -> String {
        match self.at {
            Some(at) => format!("{} ({at})", self.function),
            None => self.function.to_string(),
        }
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
            let frames = stack.frames.iter().map(|frame| Place::of(frame).to_frame());
            let comm = comms.get(&place.tid);
            let listed = SampledStack {
                comm: comm.map_or_else(String::new, |thread| tables::comm(&thread.comm)),
                syscall: call.clone(),
                frames: frames.collect(),
                samples: 0,
            };
            *stacks.entry(listed).or_default() += count;
            let Some(innermost) = stack.frames.first() else {
                continue;
            };
            let own = Place::of(stack.caller.as_ref().unwrap_or(innermost));
            let Some(name) = own.name() else { continue };
            let key = (name, own.file().map(String::from));
            let sum = functions.entry(key).or_default();
            sum.samples += count;
            if let Some(at) = own.at {
                *sum.places.entry(at.to_string()).or_default() += count;
            }
            if is_in_call {
                sum.in_calls += count;
                *sum.inside.entry(call).or_default() += count;
                continue;
            }
            let leaf = Place::of(innermost).function;
            if leaf != own.function {
                *sum.inside.entry(leaf.to_string()).or_default() += count;
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
    use super::Place;

    #[test]
    fn a_frame_without_its_offset_is_a_function_and_a_place() {
        for (frame, function, at) in [
            ("fill+0x1f (matrix.c:31)", "fill", Some("matrix.c:31")),
            ("fill (inlined) (matrix.c:31)", "fill", Some("matrix.c:31")),
            ("fill+0x1f (program)", "fill", Some("program")),
            ("libz.so.1+0x4210", "libz.so.1", None),
            (
                "JS:^answer /app/server.js:2:23+0x3 (jit)",
                "JS:^answer /app/server.js:2:23",
                Some("jit"),
            ),
            (
                "main.(*T).run+0x9 (main.go:7)",
                "main.(*T).run",
                Some("main.go:7"),
            ),
            (
                "operator+(A, B)+0x4 (a.cc:2)",
                "operator+(A, B)",
                Some("a.cc:2"),
            ),
            (
                "(further frames: 64 are kept)",
                "(further frames: 64 are kept)",
                None,
            ),
        ] {
            assert_eq!(Place::of(frame), Place { function, at }, "{frame}");
        }
        assert_eq!(
            Place::of("fill+0x1f (matrix.c:31)").to_frame(),
            "fill (matrix.c:31)"
        );
        assert_eq!(
            Place::of("fill+0x1f (matrix.c:31)").file(),
            Some("matrix.c")
        );
        assert_eq!(Place::of("fill+0x1f (program)").file(), Some("program"));
        assert_eq!(
            Place::of("fill+0x1f (program)").name(),
            Some("fill".to_string())
        );
        assert_eq!(
            Place::of("gzip+0x4210").name(),
            Some("gzip (no symbols)".to_string())
        );
        assert_eq!(Place::of("0x7f0ddec3c409").name(), None);
    }
}
