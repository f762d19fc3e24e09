//! A profile for `go tool pprof`: one sample for each place where time was spent.

mod messages;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;

use anyhow::{Context, Result};
use debox_history::{File, History, ProcessNames};
use debox_model::frame::{unfold, Frame};
use debox_model::history::{Call, Text};
use debox_model::report::SampledStack;
use flate2::write::GzEncoder;
use flate2::Compression;
use prost::Message;

use self::messages::{Function, Label, Line, Location, Mapping, Sample, ValueType};
use crate::exporter::{losses, Exporter, CANNOT_WRITE};
use crate::frames::{show, Shown};
use crate::parts::{divide, number, Below, Place, NOT_KEPT, NO_STACK};
use crate::sampled::USER;
use crate::texts::Texts;
use crate::Weight;

/// The values of a sample, in this order.
const TYPES: [(&str, &str); 5] = [
    ("blocked", "nanoseconds"),
    ("cpu", "nanoseconds"),
    ("runqueue", "nanoseconds"),
    ("calls", "count"),
    ("samples", "count"),
];
const CALLS: usize = 3;
const SAMPLES: usize = 4;

pub struct Profile<'a> {
    texts: Texts,
    samples: HashMap<Place, [u64; 5]>,
    /// Samples of what threads computed, between calls and in them.
    sampled: Vec<SampledStack>,
    weight: Weight,
    about: About,
    processes: ProcessNames,
    out: &'a mut dyn Write,
}

/// Facts about the recordings.
struct About {
    program: String,
    comments: Vec<String>,
    time_ns: i64,
    duration_ns: i64,
}

impl<'a> Profile<'a> {
    pub fn new(
        history: &History,
        weight: Weight,
        sampled: Vec<SampledStack>,
        out: &'a mut dyn Write,
    ) -> Profile<'a> {
        Profile {
            texts: Texts::default(),
            samples: HashMap::new(),
            sampled,
            weight,
            about: About::of(history),
            processes: ProcessNames::of(history),
            out,
        }
    }
}

impl About {
    fn of(history: &History) -> About {
        let mut comments = Vec::new();
        let mut say = |comment: String| {
            if !comments.contains(&comment) {
                comments.push(comment);
            }
        };
        for file in &history.files {
            let meta = &file.meta;
            say(format!("host {}, kernel {}", meta.host, meta.kernel));
            if !meta.command.is_empty() {
                say(format!("command: {}", meta.command.join(" ")));
            }
            if let Some(filter) = &meta.filter {
                say(format!("recorded with --filter '{filter}'"));
            }
            if let Some(losses) = losses(file) {
                say(losses);
            }
        }
        let metas = || history.files.iter().map(|file| &file.meta);
        let since_1970 = |offset: i64, ns: u64| (ns as i64).saturating_add(offset);
        let start = metas().map(|meta| since_1970(meta.realtime_offset_ns, meta.started_ns));
        let end = metas().map(|meta| since_1970(meta.realtime_offset_ns, meta.ended_ns));
        let start = start.min().unwrap_or(0);
        let program = metas().find_map(|meta| meta.command.first());
        About {
            program: program.cloned().unwrap_or_else(|| "(program)".to_string()),
            comments,
            time_ns: start,
            duration_ns: end.max().unwrap_or(0).saturating_sub(start).max(0),
        }
    }
}

impl Exporter for Profile<'_> {
    fn call(&mut self, file: &File, call: &Call) -> Result<()> {
        let process = self.processes.at(&file.meta.host, call.pid, call.start_ns);
        let process = process.map(|process| self.texts.number(process));
        let at = Place {
            comm: Some(self.texts.number(&call.comm)),
            process,
            stack: number(&mut self.texts, call.stack.as_ref()),
            call: self.texts.number(&call.name),
            below: Below::Nothing,
        };
        let mut fits = true;
        let samples = &mut self.samples;
        let mut add = |below, index: usize, ns| {
            // The label is the leaf: pprof's tables of functions list leaves.
            let below = match below {
                Below::Sleep { label, .. } => Below::Sleep {
                    label,
                    kernel: None,
                },
                other => other,
            };
            let place = Place { below, ..at };
            let value = &mut samples.entry(place).or_default()[index];
            let sum = value.checked_add(ns).filter(|sum| *sum <= i64::MAX as u64);
            fits &= sum.is_some();
            *value = sum.unwrap_or(*value);
        };
        for (index, weight) in [Weight::Blocked, Weight::Cpu, Weight::Runqueue]
            .into_iter()
            .enumerate()
        {
            divide(&mut self.texts, call, weight, |below, ns| {
                add(below, index, ns)
            });
        }
        // Pieces of a restarted call count as one call, with the last piece.
        if call.number >= 0 && !call.restarted {
            add(Below::Nothing, CALLS, 1);
        }
        anyhow::ensure!(
            fits,
            "the times of {} add up to more than a pprof profile can hold (292 years): the history is \
             damaged, or leave those calls out with --filter",
            call.name
        );
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let Profile {
            texts,
            samples,
            sampled,
            weight,
            about,
            processes: _,
            out,
        } = *self;
        let mut samples: Vec<(Place, [u64; 5])> = samples.into_iter().collect();
        samples.sort_unstable();
        let texts = texts.into_texts();
        let mut builder = Builder::new(&about.program);
        let samples = samples
            .iter()
            .map(|(place, values)| builder.sample(&texts, *place, values));
        let mut samples: Vec<Sample> = samples.collect();
        samples.extend(sampled.iter().map(|stack| builder.computed(stack)));
        let message = builder.finish(samples, weight, &about);
        let mut out = GzEncoder::new(out, Compression::default());
        out.write_all(&message.encode_to_vec())
            .context(CANNOT_WRITE)?;
        out.finish().context(CANNOT_WRITE)?;
        Ok(0)
    }
}

/// Gives each distinct value a number.
struct Numbered<T> {
    numbers: HashMap<T, usize>,
}

impl<T: Eq + Hash> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered {
            numbers: HashMap::new(),
        }
    }

    /// From 0.
    fn number(&mut self, thing: T) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(thing).or_insert(next)
    }

    fn in_order(self) -> Vec<T> {
        let mut things: Vec<(usize, T)> = self.numbers.into_iter().map(|(t, n)| (n, t)).collect();
        things.sort_unstable_by_key(|(number, _)| *number);
        things.into_iter().map(|(_, thing)| thing).collect()
    }
}

struct Builder {
    strings: Numbered<String>,
    /// By name and file.
    functions: Numbered<(i64, i64)>,
    /// By mapping, function and line.
    locations: Numbered<(u64, u64, u32)>,
    /// Names of programs and libraries.
    mappings: Numbered<i64>,
    /// Frames that have been parsed.
    known: HashMap<(Frame, bool), u64>,
}

impl Builder {
    fn new(program: &str) -> Builder {
        let mut builder = Builder {
            strings: Numbered::new(),
            functions: Numbered::new(),
            locations: Numbered::new(),
            mappings: Numbered::new(),
            known: HashMap::new(),
        };
        builder.string("");
        // Readers take the first mapping for the program.
        builder.mapping(program);
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        self.strings.number(text.to_string()) as i64
    }

    fn mapping(&mut self, name: &str) -> u64 {
        let name = self.string(name);
        self.mappings.number(name) as u64 + 1
    }

    fn location(&mut self, frame: &Frame, is_kernel: bool) -> u64 {
        let key = (frame.clone(), is_kernel);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let Shown {
            function,
            file,
            line,
        } = show(frame);
        let mapping = match file {
            _ if is_kernel => self.mapping("[kernel]"),
            // Without a line, the file is a program or a library.
            Some(file) if line == 0 => self.mapping(file),
            _ => 1,
        };
        let file = if line > 0 { file.unwrap_or("") } else { "" };
        let names = (self.string(&function), self.string(file));
        let function = self.functions.number(names) as u64 + 1;
        let location = self.locations.number((mapping, function, line)) as u64 + 1;
        self.known.insert(key, location);
        location
    }

    fn sample(&mut self, texts: &[Text], place: Place, values: &[u64; 5]) -> Sample {
        let text = |number: u32| &*texts[number as usize];
        // Innermost first.
        let mut location_id = Vec::new();
        match place.below {
            Below::Nothing => {}
            Below::NotKept => location_id.push(self.location(&NOT_KEPT.into(), true)),
            Below::Sleep { label, .. } => {
                location_id.push(self.location(&text(label).into(), true));
            }
        }
        location_id.push(self.location(&text(place.call).into(), true));
        match place.stack {
            None => location_id.push(self.location(&NO_STACK.into(), false)),
            Some(stack) => {
                for frame in unfold(text(stack)) {
                    location_id.push(self.location(&frame, false));
                }
            }
        }
        let labels = [("thread", place.comm), ("process", place.process)];
        let labels = labels.into_iter().filter_map(|(key, value)| {
            Some(Label {
                key: self.string(key),
                str: self.string(text(value?)),
            })
        });
        let label = labels.collect();
        Sample {
            location_id,
            value: values.map(|value| value as i64).to_vec(),
            label,
        }
    }

    fn computed(&mut self, stack: &SampledStack) -> Sample {
        let mut location_id = Vec::new();
        if stack.syscall != USER {
            location_id.push(self.location(&stack.syscall.as_str().into(), true));
        }
        if stack.frames.is_empty() {
            location_id.push(self.location(&NO_STACK.into(), false));
        }
        for frame in &stack.frames {
            location_id.push(self.location(frame, false));
        }
        let mut value = vec![0; TYPES.len()];
        value[SAMPLES] = stack.samples as i64;
        let label = Label {
            key: self.string("thread"),
            str: self.string(&stack.comm),
        };
        Sample {
            location_id,
            value,
            label: vec![label],
        }
    }

    fn finish(mut self, sample: Vec<Sample>, weight: Weight, about: &About) -> messages::Profile {
        let sample_type = TYPES
            .iter()
            .map(|(name, unit)| ValueType {
                r#type: self.string(name),
                unit: self.string(unit),
            })
            .collect();
        let first = match weight {
            Weight::Blocked => TYPES[0].0,
            Weight::Cpu => TYPES[1].0,
            Weight::Runqueue => TYPES[2].0,
            Weight::Samples => TYPES[SAMPLES].0,
        };
        let default_sample_type = self.string(first);
        let comment = about
            .comments
            .iter()
            .map(|text| self.string(text))
            .collect();
        let numbered = |index: usize| index as u64 + 1;
        let mapping = self.mappings.in_order().into_iter().enumerate();
        let location = self.locations.in_order().into_iter().enumerate();
        let function = self.functions.in_order().into_iter().enumerate();
        messages::Profile {
            sample_type,
            sample,
            mapping: mapping
                .map(|(index, filename)| Mapping {
                    id: numbered(index),
                    filename,
                    has_functions: true,
                    has_filenames: true,
                    has_line_numbers: true,
                    has_inline_frames: true,
                })
                .collect(),
            location: location
                .map(|(index, (mapping_id, function_id, line))| Location {
                    id: numbered(index),
                    mapping_id,
                    line: vec![Line {
                        function_id,
                        line: line.into(),
                    }],
                })
                .collect(),
            function: function
                .map(|(index, (name, filename))| Function {
                    id: numbered(index),
                    name,
                    system_name: name,
                    filename,
                })
                .collect(),
            string_table: self.strings.in_order(),
            time_nanos: about.time_ns,
            duration_nanos: about.duration_ns,
            comment,
            default_sample_type,
        }
    }
}
