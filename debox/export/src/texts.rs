//! Maps texts to numbers, so that a stack is processed once instead of at every call that has it.

use std::collections::HashMap;
use std::rc::Rc;

use debox_model::history::Text;

/// The most addresses that are kept.
const RECENT_MAX: usize = 1 << 16;

/// Gives each different text a number, from 0.
#[derive(Default)]
pub struct Texts {
    numbers: HashMap<Text, u32>,
    /// By address, since the records of a batch share their texts. Each text is kept alive, so that
    /// its address is not reused.
    recent: HashMap<*const u8, (Text, u32)>,
}

impl Texts {
    pub fn number(&mut self, text: &Text) -> u32 {
        if let Some((held, number)) = self.recent.get(&text.as_ptr()) {
            if Rc::ptr_eq(held, text) {
                return *number;
            }
        }
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(Rc::clone(text)).or_insert(next);
        if self.recent.len() >= RECENT_MAX {
            self.recent.clear();
        }
        self.recent.insert(text.as_ptr(), (Rc::clone(text), number));
        number
    }

    /// The texts, by their numbers.
    pub fn into_texts(self) -> Vec<Text> {
        let mut texts: Vec<(u32, Text)> = self
            .numbers
            .into_iter()
            .map(|(text, number)| (number, text))
            .collect();
        texts.sort_unstable_by_key(|(number, _)| *number);
        texts.into_iter().map(|(_, text)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_has_the_same_number_wherever_it_lies() {
        let mut texts = Texts::default();
        let seen: Vec<Text> = vec!["a".into(), "".into(), "a".into(), "b".into(), "".into()];
        let numbers: Vec<u32> = seen.iter().map(|text| texts.number(text)).collect();
        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        let texts = texts.into_texts();
        assert_eq!(texts, ["a".into(), "".into(), "b".into()]);
    }
}
