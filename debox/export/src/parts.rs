//! Divides a call's time into parts, for formats that show stacks.

use debox_model::history::{Call, Text};

use crate::texts::Texts;
use crate::Weight;

/// A place that time is attributed to, by the numbers of its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub comm: Option<u32>,
    /// The process's title or command line, if known.
    pub process: Option<u32>,
    /// The program's stack; `None` if it was not captured.
    pub stack: Option<u32>,
    pub call: u32,
    pub below: Below,
}

/// The part of a place below the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Below {
    Nothing,
    Sleep {
        label: u32,
        kernel: Option<u32>,
    },
    /// Time that the call slept or waited without a record of the sleep.
    NotKept,
}

/// The texts for [`Below::NotKept`] and for a stack that was not captured.
pub const NOT_KEPT: &str = "(sleeps that were not kept)";
pub const NO_STACK: &str = "(no stack)";

/// Calls `add` with each part of the call's time and its place. The parts add up exactly to the time
/// in the call's budget, even if the sleeps do not fit into it.
pub fn divide(texts: &mut Texts, call: &Call, weight: Weight, mut add: impl FnMut(Below, u64)) {
    let mut left = match weight {
        Weight::Blocked => call.budget.blocked_ns,
        Weight::Runqueue => call.budget.runqueue_ns,
        Weight::Samples => return, // samples are not divided by call
        Weight::Cpu => {
            if call.budget.cpu_ns > 0 {
                add(Below::Nothing, call.budget.cpu_ns);
            }
            return;
        }
    };
    for sleep in &call.sleeps {
        let part = match weight {
            Weight::Blocked => sleep.blocked_ns,
            _ => sleep.runqueue_ns,
        };
        let part = part.min(left);
        if part > 0 {
            let label = texts.number(&sleep.label);
            let kernel = number(texts, sleep.stack.as_ref());
            add(Below::Sleep { label, kernel }, part);
        }
        left -= part;
    }
    if left > 0 {
        add(Below::NotKept, left);
    }
}

/// The number of a stack; `None` if it is empty.
pub fn number(texts: &mut Texts, stack: Option<&Text>) -> Option<u32> {
    let stack = stack.filter(|stack| !stack.is_empty())?;
    Some(texts.number(stack))
}
