//! Folded stacks: one line for each place, `outer;inner;call;label;kernel functions 1234`.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context, Result};
use debox_history::File;
use debox_model::frame::texts_of;
use debox_model::history::{Call, Text};
use debox_model::report::SampledStack;
use kit_console::printable;

use crate::exporter::{Exporter, CANNOT_WRITE};
use crate::parts::{divide, number, Below, Place, NOT_KEPT, NO_STACK};
use crate::sampled::USER;
use crate::texts::Texts;
use crate::Weight;

pub struct Folded<'a> {
    weight: Weight,
    texts: Texts,
    /// 128 bits, which no sum of 64-bit numbers overflows.
    times: HashMap<Place, u128>,
    samples: Vec<SampledStack>,
    out: &'a mut dyn Write,
}

impl<'a> Folded<'a> {
    pub fn new(weight: Weight, samples: Vec<SampledStack>, out: &'a mut dyn Write) -> Folded<'a> {
        Folded {
            weight,
            texts: Texts::default(),
            times: HashMap::new(),
            samples,
            out,
        }
    }
}

impl Exporter for Folded<'_> {
    fn call(&mut self, _: &File, call: &Call) -> Result<()> {
        let stack = number(&mut self.texts, call.stack.as_ref());
        let name = self.texts.number(&call.name);
        let times = &mut self.times;
        divide(&mut self.texts, call, self.weight, |below, ns| {
            let place = Place {
                comm: None,
                process: None,
                stack,
                call: name,
                below,
            };
            *times.entry(place).or_default() += u128::from(ns);
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let texts = self.texts.into_texts();
        // Different places may have the same line if their texts differ only in characters that a
        // line cannot hold.
        let mut lines: HashMap<String, u128> = HashMap::new();
        for (place, ns) in self.times {
            *lines.entry(line(&texts, place)).or_default() += ns;
        }
        if self.weight == Weight::Samples {
            for stack in &self.samples {
                *lines.entry(sampled_line(stack)).or_default() += u128::from(stack.samples);
            }
        }
        let mut lines: Vec<(String, u128)> = lines.into_iter().collect();
        lines.sort_unstable();
        let mut out = std::io::BufWriter::new(self.out);
        for (line, ns) in lines {
            writeln!(out, "{line} {ns}").context(CANNOT_WRITE)?;
        }
        out.flush().context(CANNOT_WRITE)?;
        Ok(0)
    }
}

fn line(texts: &[Text], place: Place) -> String {
    let text = |number: u32| &*texts[number as usize];
    let mut line = String::new();
    match place.stack {
        Some(stack) => texts_of(text(stack)).for_each(|frame| push(&mut line, frame)),
        None => push(&mut line, NO_STACK),
    }
    push(&mut line, text(place.call));
    match place.below {
        Below::Nothing => {}
        Below::NotKept => push(&mut line, NOT_KEPT),
        Below::Sleep { label, kernel } => {
            push(&mut line, text(label));
            let kernel = kernel.map(text).unwrap_or_default();
            texts_of(kernel).for_each(|frame| push(&mut line, frame));
        }
    }
    line
}

/// Samples of the time between calls end with the program's function.
fn sampled_line(stack: &SampledStack) -> String {
    let mut line = String::new();
    if stack.frames.is_empty() {
        push(&mut line, NO_STACK);
    }
    stack
        .frames
        .iter()
        .rev()
        .for_each(|frame| push(&mut line, &frame.to_string()));
    if stack.syscall != USER {
        push(&mut line, &stack.syscall);
    }
    line
}

/// Appends one frame to a line.
fn push(line: &mut String, frame: &str) {
    if !line.is_empty() {
        line.push(';');
    }
    line.push_str(&printable(frame).replace(';', ":"));
}
