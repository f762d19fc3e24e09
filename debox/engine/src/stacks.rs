//! User stacks: unwound when the probes see one for the first time; later the probes recognise it.
//!
//! A stack is unwound while its process probably still exists. Its frames are kept as places in files, so no data
//! of the process has to be kept, and the same place in a thousand processes is stored once.

mod image;
mod in_flight;
mod located;
mod perf_map;
pub(crate) mod rule;
pub(crate) mod tables;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use crate::process::Processes;
use crate::tables as kernel_tables;
use crate::tables::types;
use image::{Images, Place};
pub(crate) use in_flight::{of_sleeper, of_task};
pub(crate) use located::{Located, Made};
use walk::{At, Check, End, Registers, Walk};

/// Limits on what is kept, so that a session's memory is bounded: about 60 MB when all are reached.
const MAX_NAMES: usize = 1 << 18;
const MAX_STACKS: usize = 1 << 16;
const MAX_KEYS: usize = 1 << 16;
/// The most stacks of samples. Further ones are kept without their callers, up to the same number again.
const MAX_SAMPLED: usize = 1 << 16;

/// The number of stacks that the probes compare for one key (`SHAPE_WAYS`).
const WAYS: usize = 4;

/// An unwound stack, innermost frame first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Unwound {
    /// Indices into `places`.
    frames: Box<[u32]>,
    end: End,
}

/// Data by which the probes recognise a stack.
pub(crate) struct Answer {
    pub key: types::user_shape_key,
    pub shape: types::user_shape,
}

#[derive(Default)]
pub(crate) struct Stacks {
    images: Images,
    /// By the name that the probes gave.
    names: HashMap<u64, u32>,
    kept: Kept,
    /// Stacks of samples.
    sampled: Kept,
    places: Vec<Located>,
    place_ids: HashMap<Place, u32>,
    /// The most recent names for each key, and which of them is replaced next.
    ways: HashMap<KeyBits, ([u64; WAYS], usize)>,
    /// Stacks that were not kept because a limit was reached.
    pub lost: u64,
}

/// Distinct stacks.
#[derive(Default)]
struct Kept {
    stacks: Vec<Unwound>,
    ids: HashMap<Unwound, u32>,
}

impl Kept {
    fn id_of(&mut self, stack: Unwound) -> u32 {
        if let Some(id) = self.ids.get(&stack) {
            return *id;
        }
        let id = self.stacks.len() as u32;
        self.stacks.push(stack.clone());
        self.ids.insert(stack, id);
        id
    }
}

type KeyBits = (u64, u32, u16, u8, u8);

impl Stacks {
    /// Unwinds a stack that the probes sent. `None`: the stack cannot be recognised by its words (or the message is
    /// not a stack but announces new code).
    pub fn take(&mut self, bytes: &[u8], processes: &mut Processes) -> Option<Answer> {
        let ask = kernel_tables::read_value::<types::stack_ask>(bytes)?;
        let stack = &bytes[std::mem::size_of::<types::stack_ask>()..];
        let stack = &stack[..stack.len().min(ask.bytes as usize)];
        if ask.name == 0 {
            self.images.add_mapping(&ask, &path_of(stack), processes);
            return None;
        }
        let (places, walk) = self.unwind(&ask, stack, processes);
        self.keep(ask.name, places, walk.end);
        self.answer(&ask, &walk)
    }

    /// Unwinds the stack of a sample. Returns the name that the probes gave it, and a number for the stack; `None`:
    /// it could not be kept.
    pub fn take_sample(&mut self, bytes: &[u8], processes: &mut Processes) -> Option<(u64, u32)> {
        let ask = kernel_tables::read_value::<types::stack_ask>(bytes)?;
        let stack = &bytes[std::mem::size_of::<types::stack_ask>()..];
        let stack = &stack[..stack.len().min(ask.bytes as usize)];
        if ask.ip == 0 {
            // During `execve` the stack is neither the old program's nor the new one's.
            let unknown = Unwound {
                frames: Box::default(),
                end: End::Complete,
            };
            return Some((ask.name, self.sampled.id_of(unknown)));
        }
        let (mut places, walk) = self.unwind(&ask, stack, processes);
        let mut end = walk.end;
        if self.sampled.stacks.len() >= MAX_SAMPLED {
            if self.sampled.stacks.len() >= 2 * MAX_SAMPLED {
                return None;
            }
            places.truncate(1);
            end = End::NoRoom;
        }
        let frames = self.ids_of(places);
        Some((ask.name, self.sampled.id_of(Unwound { frames, end })))
    }

    fn unwind(
        &mut self,
        ask: &types::stack_ask,
        stack: &[u8],
        processes: &mut Processes,
    ) -> (Vec<(Place, Located)>, Walk) {
        let registers = Registers {
            ip: ask.ip,
            sp: ask.sp,
            bp: ask.bp,
            bx: ask.bx,
            di: ask.di,
            high: [ask.r12, ask.r13, ask.r14, ask.r15],
            interrupted: (ask.is_interrupted != 0).then_some(ask.r10),
        };
        let mut program = self.images.of(ask, processes);
        let walk = if ask.is_compat != 0 {
            walk::innermost_only(&registers)
        } else {
            walk::walk(&registers, stack, &mut program)
        };
        let places: Vec<(Place, Located)> = walk
            .frames
            .iter()
            .map(|frame| program.place(*frame))
            .collect();
        (places, walk)
    }

    fn keep(&mut self, name: u64, places: Vec<(Place, Located)>, end: End) {
        if self.names.len() >= MAX_NAMES || self.kept.stacks.len() >= MAX_STACKS {
            self.lost += u64::from(!self.names.contains_key(&name));
            return;
        }
        let frames = self.ids_of(places);
        let id = self.kept.id_of(Unwound { frames, end });
        self.names.insert(name, id);
    }

    fn ids_of(&mut self, places: Vec<(Place, Located)>) -> Box<[u32]> {
        let ids = places.into_iter().map(|(place, located)| {
            *self.place_ids.entry(place).or_insert_with(|| {
                self.places.push(located);
                self.places.len() as u32 - 1
            })
        });
        ids.collect()
    }

    fn answer(&mut self, ask: &types::stack_ask, walk: &Walk) -> Option<Answer> {
        let checks = walk.checks.as_ref()?;
        let mut shape = types::user_shape {
            name: ask.name,
            checks: u32::try_from(checks.len()).ok()?,
            ..types::user_shape::default()
        };
        if checks.len() > shape.value.len() {
            return None;
        }
        for (index, check) in checks.iter().enumerate() {
            shape.value[index] = check.value;
            shape.at[index] = place_of(check)?;
        }
        let depth = (ask.sp / 8) as u8;
        let kind = match ask.is_interrupted {
            0 => 0,
            _ => kernel_tables::WAY_INTERRUPTED,
        };
        let way = kind | self.way((ask.ip, ask.tgid, ask.image, depth, kind), ask.name);
        let key = types::user_shape_key {
            ip: ask.ip,
            tgid: ask.tgid,
            image: ask.image,
            depth,
            way,
        };
        Some(Answer { key, shape })
    }

    /// The place of a stack among those of its key: its existing place, or otherwise the next one in turn.
    fn way(&mut self, key: KeyBits, name: u64) -> u8 {
        if self.ways.len() >= MAX_KEYS {
            self.ways.clear();
        }
        let (names, next) = self.ways.entry(key).or_default();
        let way = names.iter().position(|known| *known == name);
        let way = way.unwrap_or_else(|| {
            let way = *next % WAYS;
            names[way] = name;
            *next += 1;
            way
        });
        way as u8
    }

    /// The function that, according to the process, was made at an address, and the offset in it. If the process
    /// had not named it before `instant`, its names are read again.
    pub fn made_function(
        &self,
        tgid: u32,
        address: u64,
        instant: Instant,
    ) -> Option<(Rc<str>, u64)> {
        self.images.made_function(tgid, address, instant)
    }

    /// The frames of a stack and, if it was not unwound to its end, the reason.
    pub fn frames(&self, name: u64) -> Option<(Vec<&Located>, Option<&'static str>)> {
        let id = *self.names.get(&name)?;
        Some(self.in_places(&self.kept.stacks[id as usize]))
    }

    /// The same for the stack of a sample, by its number.
    pub fn sampled(&self, id: u32) -> (Vec<&Located>, Option<&'static str>) {
        self.in_places(&self.sampled.stacks[id as usize])
    }

    fn in_places(&self, unwound: &Unwound) -> (Vec<&Located>, Option<&'static str>) {
        let frames = unwound.frames.iter().map(|at| &self.places[*at as usize]);
        (frames.collect(), unwound.end.reason())
    }
}

/// Parses a path in the probes' format: from the last component to the first, each followed by a zero.
fn path_of(sent: &[u8]) -> PathBuf {
    let components = sent.split(|byte| *byte == 0).rev();
    let components = components.filter(|component| !component.is_empty());
    let root = PathBuf::from("/");
    components.fold(root, |path, component| {
        path.join(OsStr::from_bytes(component))
    })
}

/// A check's place in the probes' format; `None` if it is out of their reach.
fn place_of(check: &Check) -> Option<u32> {
    let at = match check.at {
        At::FramePointer => kernel_tables::CHECK_FRAME_POINTER,
        At::StackPointer => kernel_tables::CHECK_STACK_POINTER,
        At::Stack(at) => u32::try_from(at)
            .ok()
            .filter(|at| *at <= kernel_tables::CHECK_OFFSET)?,
    };
    let relative = if check.is_relative {
        kernel_tables::CHECK_RELATIVE
    } else {
        0
    };
    Some(at | relative)
}

impl End {
    /// A remark that replaces the missing frames.
    fn reason(self) -> Option<&'static str> {
        Some(match self {
            End::Complete => return None,
            End::TooManyFrames => "(further frames: 64 are kept)",
            End::TooDeep => "(further frames: 16 kB of the stack are looked at)",
            End::NoRoom => "(further frames: the samples have more different stacks than are kept)",
            End::NoTables => "(further frames: neither unwinding tables nor frame pointers)",
            End::Gone => {
                "(further frames: the process ended or ran another program before they were looked up)"
            }
            End::NoFile => "(further frames: the file that the code is from could not be opened)",
            End::NoCode => "(further frames: what the unwinding tables lead to is not code)",
            End::Compat => "(further frames: stacks of 32-bit programs are not unwound)",
        })
    }
}
