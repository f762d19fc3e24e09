//! Decides on the thread itself whether a predicate holds for its last call. Needed if the call slept at
//! a place whose label the probes do not know yet.
//!
//! This runs in the handler of a trigger's signal, which may have interrupted anything: it takes no lock
//! and allocates nothing. The names of the kernel's functions and of the calls are read before the
//! session begins; the place's stack is looked up in the session's map. The results of the tests of its
//! label go to the probes, which decide all later calls there themselves.

use std::mem::{offset_of, MaybeUninit};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use libbpf_rs::libbpf_sys;

use crate::calls;
use crate::decision::{self, tests_that_hold, Decision, EndedCall};
use crate::kernel::objects;
use crate::labelled;
use crate::labels::{self, Class, Labels};
use crate::predicate::{CpuOwner, Site};
use crate::session::{Session, Table};
use crate::tables::{types, CALL_IA32, OWNER_NAMED, OWNER_UNNAMED, ROWS};
use crate::trigger::{Trigger, TRIGGERS_MAX};

use super::armed::Armed;
use super::trigger_counts::{add, count_missed, counter, keep_counts, map_counts, Counts};
use super::{memory, prepared, Error};

type Open = types::undecided_call;
/// The name of a place, which rules and the kernel's names have for good.
type Place = Site<'static>;

/// The names of the calls, first of the 64-bit table, then of the 32-bit one. Read once and never freed,
/// since a handler may be reading them.
static CALLS: OnceLock<Vec<String>> = OnceLock::new();

/// A map of the session. The id shows whether the descriptor still stands for it.
struct Map {
    fd: AtomicI32,
    id: AtomicU32,
}

static STACKS: Map = Map::none();
static ANSWERS: Map = Map::none();

/// The number of handlers that are using the maps, whose descriptors are closed only after that.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The most frames of a stack, and the most sites of a call (debox/probe/shared.h).
const FRAMES: usize = 24;
const SITES: usize = 8;

/// Reads the names needed to label places, once; takes some tenths of a second.
pub(super) fn prepare() -> Result<(), Error> {
    prepared::read_names().map_err(|error| Error::Unsupported(format!("{error:#}")))?;
    Labels::builtin();
    CALLS.get_or_init(call_names);
    Ok(())
}

/// Takes the maps of a session with triggers that has been opened. The caller holds the lock.
pub(super) fn begin(session: &Session) -> Result<(), Error> {
    let id_of = |table| {
        objects::map_id(session.table(table))
            .map_err(|error| Error::System(format!("cannot read what a map is: {error}")))
    };
    let stacks = id_of(Table::KernelStacks)?;
    let answers = id_of(Table::SiteAnswers)?;
    map_counts(session.table(Table::TriggerCounts).as_raw_fd())?;
    STACKS.set(session.table(Table::KernelStacks).as_raw_fd(), stacks);
    ANSWERS.set(session.table(Table::SiteAnswers).as_raw_fd(), answers);
    Ok(())
}

/// Waits until no handler uses the session's maps, so that they can be closed. To be called after
/// [`memory::unpublish`].
pub(super) fn end() {
    const PATIENCE_MS: usize = 1000; // for a handler that a debugger has stopped
    for _ in 0..PATIENCE_MS {
        if USERS.load(Ordering::SeqCst) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    STACKS.set(-1, 0);
    ANSWERS.set(-1, 0);
    keep_counts();
}

/// In a forked child: handlers that were running were on the parent's threads.
pub(super) fn forget_users() {
    USERS.store(0, Ordering::SeqCst);
}

/// Which triggers fire for a call, as bits. Runs in a signal handler.
pub(super) fn decide(call: &Open, armed: &dyn Fn(usize) -> Option<&'static Armed>) -> u64 {
    USERS.fetch_add(1, Ordering::SeqCst);
    let fired = match memory::generation() {
        0 => 0,
        _ => decide_with_maps(call, armed),
    };
    USERS.fetch_sub(1, Ordering::SeqCst);
    fired
}

fn decide_with_maps(call: &Open, armed: &dyn Fn(usize) -> Option<&'static Armed>) -> u64 {
    let used = (call.sites_used as usize).min(SITES);
    let mut places: [Option<Place>; SITES + 1] = [None; SITES + 1];
    for (place, site) in places.iter_mut().zip(&call.sites[..used]) {
        *place = name(call.call, site.stack, site.lock_flags);
        if let Some(place) = *place {
            answer(call.call, site.stack, site.lock_flags, place, armed);
        }
    }
    // One more unknown site stands for those for which there was no room.
    let ended = ended(call, &places[..used + usize::from(call.is_incomplete != 0)]);
    let mut fired = 0;
    for index in (0..TRIGGERS_MAX).filter(|index| call.triggers & (1 << index) != 0) {
        let Some(armed) = armed(index) else { continue };
        let Trigger {
            predicate, limit, ..
        } = &armed.trigger;
        let window = counter(index, offset_of!(Counts, window));
        match decision::decide(predicate, *limit, window, &ended, call.at_ns) {
            Decision::DoesNotHold => {}
            Decision::Undecided => count_missed(index),
            Decision::Suppressed => add(index, offset_of!(Counts, suppressed)),
            Decision::Fires => {
                add(index, offset_of!(Counts, fired));
                fired |= 1 << index;
            }
        }
    }
    fired
}

/// Label and class of a place, as from [`crate::explain::in_words`].
fn name(call: u32, stack: u64, lock_flags: u32) -> Option<Place> {
    let (names, calls) = (prepared::names()?, CALLS.get()?);
    let stack: types::kernel_stack = STACKS.look_up(&stack)?;
    let mut functions = [""; FRAMES + 1];
    let mut used = 0;
    let frames = stack.frames.iter().take_while(|frame| **frame != 0);
    let frames = frames.map(|frame| names.find(*frame).map_or("", labels::function));
    for function in labelled::functions(lock_flags, frames).take(FRAMES + 1) {
        functions[used] = function;
        used += 1;
    }
    let args = (stack.has_args != 0).then_some(stack.args);
    let functions = &functions[..used];
    let Some(found) = Labels::builtin().find(call_name(calls, call), args, functions) else {
        return Some(Site {
            label: labels::UNKNOWN,
            class: Class::Other.as_str(),
        });
    };
    // None of the built-in rules has a label that has to be formatted, which would allocate.
    let label = found.label_in(functions)?;
    let class = found.class.as_str();
    (!label.is_empty()).then_some(Site { label, class })
}

/// Gives the probes the answer for the next time. Best effort: without it the next call there is decided
/// by its thread, too.
fn answer(
    call: u32,
    stack: u64,
    lock_flags: u32,
    site: Place,
    armed: &dyn Fn(usize) -> Option<&'static Armed>,
) {
    let mut answer = types::site_answer {
        holds: 0,
        is_known: 1,
    };
    for index in 0..TRIGGERS_MAX {
        if let Some(armed) = armed(index) {
            answer.holds |= tests_that_hold(index, &armed.sites, site);
        }
    }
    let key = types::sleep_key {
        stack,
        call,
        lock_flags,
    };
    ANSWERS.update(&key, &answer);
}

fn call_names() -> Vec<String> {
    let numbers = (0..ROWS).chain((0..ROWS).map(|number| number | CALL_IA32));
    numbers.map(calls::name).collect()
}

fn call_name(names: &[String], call: u32) -> &str {
    let number = call & !CALL_IA32;
    let table = if call & CALL_IA32 == 0 { 0 } else { ROWS };
    let name = names.get((table + number) as usize);
    name.filter(|_| number < ROWS).map_or("", String::as_str)
}

impl Map {
    const fn none() -> Map {
        Map {
            fd: AtomicI32::new(-1),
            id: AtomicU32::new(0),
        }
    }

    fn set(&self, fd: i32, id: u32) {
        self.id.store(id, Ordering::Relaxed);
        self.fd.store(fd, Ordering::Release);
    }

    /// The descriptor, unless the program has closed it and perhaps reused its number.
    fn descriptor(&self) -> Option<i32> {
        let fd = self.fd.load(Ordering::Acquire);
        let mut info = libbpf_sys::bpf_map_info::default();
        let mut length = size_of::<libbpf_sys::bpf_map_info>() as u32;
        // SAFETY: `info` has room for `length` bytes.
        let failed =
            unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut length) };
        (failed == 0 && info.id == self.id.load(Ordering::Relaxed)).then_some(fd)
    }

    /// The caller knows the types of the map.
    fn look_up<K: Copy, V: Copy>(&self, key: &K) -> Option<V> {
        let fd = self.descriptor()?;
        let mut value = MaybeUninit::<V>::zeroed();
        // SAFETY: key and value have the sizes of the map's, and any bytes are a value.
        unsafe {
            let key = ptr::from_ref(key).cast();
            let failed = libbpf_sys::bpf_map_lookup_elem(fd, key, value.as_mut_ptr().cast());
            (failed == 0).then(|| value.assume_init())
        }
    }

    /// The caller knows the types of the map.
    fn update<K: Copy, V: Copy>(&self, key: &K, value: &V) {
        let Some(fd) = self.descriptor() else { return };
        // SAFETY: key and value have the sizes of the map's.
        unsafe {
            let (key, value) = (ptr::from_ref(key).cast(), ptr::from_ref(value).cast());
            libbpf_sys::bpf_map_update_elem(fd, key, value, 0);
        }
    }
}

/// A name as the probes copied it, up to its zero.
fn text(bytes: &[i8]) -> Option<&str> {
    // SAFETY: bytes are bytes, with or without a sign.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), bytes.len()) };
    let end = bytes.iter().position(|byte| *byte == 0);
    std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()
}

/// The call for its predicate, with the places at which it slept as far as they are known.
fn ended<'a>(call: &'a Open, sites: &'a [Option<Place>]) -> EndedCall<'a> {
    let owner = || text(&call.cpu_owner_comm);
    EndedCall {
        call: call.call,
        values: &call.values,
        comm: text(&call.comm),
        cpu_owner: match call.cpu_owner {
            OWNER_UNNAMED => CpuOwner::Unknown,
            OWNER_NAMED => owner().map_or(CpuOwner::Unknown, CpuOwner::Named),
            _ => CpuOwner::Nobody,
        },
        sites,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::SIGN;
    use crate::predicate::{Number, Predicate};

    #[test]
    fn predicates_see_what_the_probes_left() {
        let mut call = Open {
            call: libc::SYS_nanosleep as u32,
            cpu_owner: OWNER_NAMED,
            ..Open::default()
        };
        call.values[Number::Ret as usize] = (-4i64) as u64 ^ SIGN;
        call.comm[..3].copy_from_slice(&[b'a' as i8, b'b' as i8, 0]);
        call.cpu_owner_comm[..2].copy_from_slice(&[b'c' as i8, 0]);
        let timer = Site {
            label: "timer",
            class: "idle",
        };
        let truth = |predicate: &str| {
            let predicate = Predicate::parse(predicate).expect(predicate);
            predicate.truth(&ended(&call, &[Some(timer), None]))
        };
        let holding = "label == timer && ret == -4 && comm == ab && cpu_owner == c";
        assert_eq!(truth(holding), Some(true));
        assert_eq!(truth("syscall == nanosleep"), Some(true));
        assert_eq!(truth("label == epoll"), None);
    }

    /// Names as the engine uses them in reports.
    #[test]
    fn calls_have_their_names() {
        let names = call_names();
        for call in [0, 35, 511, CALL_IA32, 20 | CALL_IA32] {
            assert_eq!(call_name(&names, call), calls::name(call));
        }
        for call in [ROWS, 0xffff, ROWS | CALL_IA32, 0xffff | CALL_IA32] {
            assert_eq!(call_name(&names, call), "");
        }
    }
}
