// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that should be monitored and cannot be.

/// Of these the reasons are kept; others are counted.
const REASONS_MAX: usize = 20;

/// Processes that should be monitored and are not.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut {
    reasons: Vec<String>,
    more: u64,
}

impl LeftOut {
    /// `why`: a sentence's end, which names the process.
    pub fn add(&mut self, why: String) {
        match self.reasons.len() < REASONS_MAX {
            true => self.reasons.push(why),
            false => self.more = self.more.saturating_add(1),
        }
    }

    /// In sentences.
    pub fn notes(&self) -> Vec<String> {
        let reasons = self.reasons.iter();
        let mut notes: Vec<String> = reasons
            .map(|why| format!("Not monitored: {why}."))
            .collect();
        if self.more > 0 {
            let processes = match self.more {
                1 => "process",
                _ => "processes",
            };
            notes.push(format!("Not monitored: {} more {processes}.", self.more));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_have_reasons_and_the_rest_are_counted() {
        let mut left_out = LeftOut::default();
        assert!(left_out.notes().is_empty());
        for pid in 0..REASONS_MAX {
            left_out.add(format!("process {pid} has ended"));
        }
        assert_eq!(left_out.notes()[0], "Not monitored: process 0 has ended.");
        assert_eq!(left_out.notes().len(), REASONS_MAX);
        left_out.add(String::new());
        let last = |left_out: &LeftOut| left_out.notes().pop();
        assert_eq!(
            last(&left_out).as_deref(),
            Some("Not monitored: 1 more process.")
        );
        left_out.add(String::new());
        assert_eq!(
            last(&left_out).as_deref(),
            Some("Not monitored: 2 more processes.")
        );
    }
}
