//! Each call's cost in the order of its invocations. A history is cut into segments; each segment
//! keeps a random sample of the invocations, and exact sums of all.

use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt;
use rustc_hash::FxHashMap;

use crate::names::Name;

/// Segments of a history, at least; more where it has more groups of rows.
pub const SEGMENTS: usize = 64;
/// Samples of one call in all segments together, approximately.
const SAMPLES: usize = 32_768;

/// One invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// The invocation's index among the call's invocations in its segment.
    pub at: u32,
    pub wall: u64,
    pub cpu: u64,
    pub kind: Kind,
}

/// Distinguishes invocations of one call: by the caller, and by the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    pub caller: Name,
    pub error: Name,
}

/// One call's part of a segment.
#[derive(Debug, Clone, Default)]
pub struct CallSegment {
    pub count: u64,
    pub wall: u64,
    pub cpu: u64,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Segment {
    pub group: u32,
    pub part: u32,
    pub calls: FxHashMap<Name, CallSegment>,
}

/// How many samples of a call a segment keeps.
pub fn samples_per_segment(segments: usize) -> usize {
    (SAMPLES / segments.max(1)).clamp(16, 512)
}

impl CallSegment {
    #[inline]
    pub fn add(
        &mut self,
        wall: u64,
        cpu: u64,
        kind: Kind,
        room: usize,
        random: &mut Xoshiro256PlusPlus,
    ) {
        let sample = Sample {
            at: self.count as u32,
            wall,
            cpu,
            kind,
        };
        self.count += 1;
        self.wall = self.wall.saturating_add(wall);
        self.cpu = self.cpu.saturating_add(cpu);
        if self.samples.len() < room {
            self.samples.push(sample);
            return;
        }
        let at = random.random_range(0..self.count) as usize;
        if at < room {
            self.samples[at] = sample;
        }
    }
}

/// One call's samples over the whole history, in order.
#[derive(Debug, Clone, Default)]
pub struct Series {
    pub points: Vec<Point>,
    pub count: u64,
    /// Exact sums of each segment that has the call: invocations, wall time, CPU time.
    pub segments: Vec<(u64, u64, u64)>,
    /// Whether every invocation is among the samples.
    pub complete: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The invocation's index among all of the call's.
    pub at: u64,
    /// How many invocations the point stands for.
    pub weight: f64,
    pub wall: u64,
    pub cpu: u64,
    pub kind: Kind,
}

/// The series of all calls.
pub fn series(mut segments: Vec<Segment>) -> FxHashMap<Name, Series> {
    segments.sort_by_key(|segment| (segment.group, segment.part));
    let mut all: FxHashMap<Name, Series> = FxHashMap::default();
    for segment in segments {
        for (name, mut part) in segment.calls {
            let series = all.entry(name).or_insert_with(|| Series {
                complete: true,
                ..Series::default()
            });
            part.samples.sort_unstable();
            series.complete &= part.samples.len() as u64 == part.count;
            let weight = part.count as f64 / part.samples.len().max(1) as f64;
            let begin = series.count;
            series
                .points
                .extend(part.samples.iter().map(|sample| Point {
                    at: begin + u64::from(sample.at),
                    weight,
                    wall: sample.wall,
                    cpu: sample.cpu,
                    kind: sample.kind,
                }));
            series.count += part.count;
            series.segments.push((part.count, part.wall, part.cpu));
        }
    }
    all
}
