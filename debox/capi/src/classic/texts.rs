//! The names of sleeps in a `PerSleepInfo`, kept where a signal handler can read them: in a table
//! of fixed size whose entries are written once.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use engine::inband::{Explanation, Last};
use engine::record::Sleep;

use crate::fixed;

/// How many characters of a label fit into `wmesg`.
const WMESG: usize = 7;

/// The text fields of a `PerSleepInfo`.
#[derive(Clone, Copy)]
pub struct Text {
    pub wmesg: [c_char; 8],
    pub blocking_file: [c_char; 32],
    pub blocking_line: c_int,
}

impl Text {
    /// A sleep of which only this label is known.
    pub fn unknown(label: &str) -> Text {
        Text {
            wmesg: fixed(label),
            blocking_file: [0; 32],
            blocking_line: 0,
        }
    }

    pub fn of(known: &Explanation) -> Text {
        let label = known.label.as_str();
        let wmesg = fixed(label.get(..WMESG).unwrap_or(label).trim_end());
        if known.file.is_empty() {
            return Text {
                wmesg,
                blocking_file: fixed(&short_site(known, 31)),
                blocking_line: 0,
            };
        }
        Text {
            wmesg,
            blocking_file: fixed(&known.file),
            blocking_line: c_int::try_from(known.line).unwrap_or(c_int::MAX),
        }
    }
}

/// `function+0xOFF` in at most `room` characters: the function's name is cut, never the offset.
fn short_site(explained: &Explanation, room: usize) -> String {
    let site = explained.site();
    if site.len() <= room {
        return site;
    }
    let offset = format!("+{:#x}", explained.offset);
    let kept = room.saturating_sub(offset.len());
    let function: String = explained.function.chars().take(kept).collect();
    function + &offset
}

/// Everything that a sleep's name depends on. Of the arguments, labels depend on those of `fcntl`
/// only. A stack's name is made from its addresses, which mean the same until the machine is
/// restarted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    stack: u64,
    argument: u64,
    call: i64,
    abi: u16,
    lock_flags: u32,
}

impl Key {
    pub fn of(last: Last, sleep: &Sleep) -> Key {
        let call = last.call();
        Key {
            stack: sleep.stack,
            argument: if call == libc::SYS_fcntl {
                last.args()[1]
            } else {
                0
            },
            call,
            abi: last.abi(),
            lock_flags: sleep.lock_flags,
        }
    }

    fn first_place(&self) -> usize {
        let mixed = (self.stack ^ self.call as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % PLACES
    }
}

const PLACES: usize = 1024;
/// How many places are tried for one key. If all of them are taken, the text is looked up again
/// each time.
const PROBES: usize = 16;

const EMPTY: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const WRITTEN: u32 = 2;

struct Place {
    state: AtomicU32,
    entry: UnsafeCell<Option<(Key, Text)>>,
}

// SAFETY: only the thread that moves the place from EMPTY to BEING_WRITTEN writes the entry. It is
// read only once it is WRITTEN, and does not change after that.
unsafe impl Sync for Place {}

static TEXTS: [Place; PLACES] = [const {
    Place {
        state: AtomicU32::new(EMPTY),
        entry: UnsafeCell::new(None),
    }
}; PLACES];

fn places(key: &Key) -> impl Iterator<Item = &'static Place> {
    let first = key.first_place();
    (first..first + PROBES).map(|at| &TEXTS[at % PLACES])
}

/// Plain loads: safe in a signal handler.
pub fn find(key: &Key) -> Option<Text> {
    for place in places(key) {
        match place.state.load(Ordering::Acquire) {
            EMPTY => return None,
            WRITTEN => {
                // SAFETY: written, so it does not change any more.
                if let Some((known, text)) = unsafe { &*place.entry.get() } {
                    if known == key {
                        return Some(*text);
                    }
                }
            }
            _ => {}
        }
    }
    None
}

pub fn keep(key: Key, text: Text) {
    for place in places(&key) {
        let taken = place.state.compare_exchange(
            EMPTY,
            BEING_WRITTEN,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            // SAFETY: this thread has taken the empty place.
            unsafe { *place.entry.get() = Some((key, text)) };
            place.state.store(WRITTEN, Ordering::Release);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::labels::Class;

    fn explanation(function: &str, offset: u64) -> Explanation {
        Explanation {
            label: "page writeback".to_string(),
            class: Class::Disk,
            function: function.to_string(),
            offset,
            file: String::new(),
            line: 0,
            frames: Vec::new(),
        }
    }

    fn text(bytes: &[c_char]) -> String {
        bytes
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| *c as u8 as char)
            .collect()
    }

    #[test]
    fn sites_keep_their_offset() {
        assert_eq!(short_site(&explanation("short", 0x1a), 31), "short+0x1a");
        let long = explanation("a_function_with_a_very_long_name_indeed", 0x1a3);
        assert_eq!(short_site(&long, 31), "a_function_with_a_very_lo+0x1a3");
        assert_eq!(short_site(&long, 31).len(), 31);
    }

    #[test]
    fn labels_are_cut_at_seven() {
        let known = Text::of(&explanation("wb_wait", 0x10));
        assert_eq!(text(&known.wmesg), "page wr");
        assert_eq!(text(&known.blocking_file), "wb_wait+0x10");
        assert_eq!(known.blocking_line, 0);
        let mapped = Explanation {
            label: "mapped page".to_string(),
            ..explanation("f", 0)
        };
        assert_eq!(text(&Text::of(&mapped).wmesg), "mapped");
    }

    #[test]
    fn debug_information_goes_to_file_and_line() {
        let known = Explanation {
            file: "mm/filemap.c".to_string(),
            line: 1234,
            ..explanation("folio_wait_bit_common", 1)
        };
        let known = Text::of(&known);
        assert_eq!(text(&known.blocking_file), "mm/filemap.c");
        assert_eq!(known.blocking_line, 1234);
    }

    #[test]
    fn what_is_kept_is_found() {
        let key = |stack| Key {
            stack,
            argument: 0,
            call: 0,
            abi: 0,
            lock_flags: 0,
        };
        assert!(find(&key(1)).is_none());
        for stack in 1..100 {
            let line = stack as c_int;
            let known = Text {
                blocking_line: line,
                ..Text::unknown("x")
            };
            keep(key(stack), known);
        }
        for stack in 1..100 {
            let found = find(&key(stack)).expect("kept");
            assert_eq!(found.blocking_line, stack as c_int);
        }
        assert!(find(&key(100)).is_none());
    }
}
