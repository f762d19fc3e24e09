//! Texts that are written once and then referred to by number.

use std::collections::HashMap;

use debox_model::history::Text;

use super::messages::{InternedData, Named};
use crate::texts::Texts;

/// Readers keep all texts, and so does this module: beyond this many texts or bytes, it starts
/// again with none.
const TEXTS_MAX: usize = 1 << 17;
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
pub struct Interned {
    categories: Table<&'static str>,
    /// Names of calls and labels.
    names: Numbers,
    argument_names: Table<&'static str>,
    texts: Numbers,
    new: InternedData,
    has_new: bool,
    bytes: usize,
}

#[derive(Default)]
struct Table<K> {
    numbers: HashMap<K, u64>,
}

#[derive(Default)]
struct Numbers {
    texts: Texts,
    count: u64,
}

impl Numbers {
    /// The number, from 1, and whether it is new.
    fn number(&mut self, text: &Text) -> (u64, bool) {
        let number = u64::from(self.texts.number(text)) + 1;
        let is_new = number > self.count;
        self.count = self.count.max(number);
        (number, is_new)
    }
}

impl Table<&'static str> {
    fn number(&mut self, text: &'static str) -> (u64, bool) {
        let next = self.numbers.len() as u64 + 1;
        let number = *self.numbers.entry(text).or_insert(next);
        (number, number == next)
    }
}

fn named(number: u64, text: &str) -> Named {
    Named {
        iid: Some(number),
        name: Some(text.to_string()),
    }
}

impl Interned {
    pub fn is_full(&self) -> bool {
        self.bytes > BYTES_MAX || (self.names.count + self.texts.count) as usize > TEXTS_MAX
    }

    /// The new texts that the next packet has to define.
    pub fn take_new(&mut self) -> Option<InternedData> {
        std::mem::take(&mut self.has_new).then(|| std::mem::take(&mut self.new))
    }

    pub fn category(&mut self, text: &'static str) -> u64 {
        let (number, is_new) = self.categories.number(text);
        if is_new {
            self.new.event_categories.push(named(number, text));
            self.has_new = true;
        }
        number
    }

    pub fn name(&mut self, text: &Text) -> u64 {
        let (number, is_new) = self.names.number(text);
        if is_new {
            self.bytes += text.len();
            self.new.event_names.push(named(number, text));
            self.has_new = true;
        }
        number
    }

    pub fn argument_name(&mut self, text: &'static str) -> u64 {
        let (number, is_new) = self.argument_names.number(text);
        if is_new {
            self.new.debug_annotation_names.push(named(number, text));
            self.has_new = true;
        }
        number
    }

    pub fn text(&mut self, text: &Text) -> u64 {
        let (number, is_new) = self.texts.number(text);
        if is_new {
            self.bytes += text.len();
            let new = &mut self.new.debug_annotation_string_values;
            new.push(named(number, text));
            self.has_new = true;
        }
        number
    }
}
