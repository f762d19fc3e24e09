//! From stacks to sites, labels and call sites, for people.

use std::cell::RefCell;

use crate::calls;
use crate::collect::Snapshot;
use crate::labels::Labels;
use crate::process::Processes;
use crate::stacks::{Located, Stacks};
use crate::symbols::{Frame, Symbols};
use crate::tables::{self, types};

/// Where the addresses of a program end on x86-64.
const USER_END: u64 = 1 << 47;

/// A sleep, in words.
pub(crate) struct Explained {
    pub label: String,
    pub class: String,
    pub site: String,
    pub frames: Vec<String>,
}

/// Looks up the session's stacks.
pub(crate) struct Explainer<'a> {
    symbols: Symbols,
    processes: &'a RefCell<Processes>,
    stacks: &'a RefCell<Stacks>,
    snapshot: &'a Snapshot,
}

impl<'a> Explainer<'a> {
    pub fn new(
        snapshot: &'a Snapshot,
        processes: &'a RefCell<Processes>,
        stacks: &'a RefCell<Stacks>,
    ) -> Explainer<'a> {
        Explainer {
            symbols: Symbols::default(),
            processes,
            stacks,
            snapshot,
        }
    }

    /// A sleep in `call` at the kernel stack of that name.
    pub fn sleep(&self, call: u32, stack: u64, lock_flags: u32) -> Explained {
        let addresses = self
            .snapshot
            .kernel_stacks
            .get(&stack)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let args = self.snapshot.stack_args.get(&stack).copied();
        self.stack(call, args, addresses, lock_flags)
    }

    /// The same for the addresses themselves, innermost first, and for what rules look at in the
    /// arguments.
    pub fn stack(
        &self,
        call: u32,
        args: Option<[u64; 3]>,
        addresses: &[u64],
        lock_flags: u32,
    ) -> Explained {
        let frames: Vec<Frame> = addresses.iter().map(|a| self.symbols.kernel(*a)).collect();
        let mut functions: Vec<&str> = lock_frame(lock_flags).into_iter().collect();
        let before = functions.len();
        functions.extend(frames.iter().map(|frame| frame.function.as_str()));
        let explained = Labels::builtin().explain(&calls::name(call), args, &functions);
        let site = explained
            .site_index
            .and_then(|index| index.checked_sub(before))
            .and_then(|index| frames.get(index))
            .or(frames.first())
            .map_or_else(|| "unknown".to_string(), Frame::to_string);
        Explained {
            label: explained.label,
            class: explained.class.to_string(),
            site,
            frames: frames.iter().map(Frame::to_string).collect(),
        }
    }

    /// User stacks that were had and could not be kept.
    pub fn stacks_lost(&self) -> u64 {
        self.stacks.borrow().lost
    }

    /// The user stack of that name, innermost first.
    pub fn user_stack(&self, name: u64) -> Vec<String> {
        if let Some((frames, reason)) = self.stacks.borrow().frames(name) {
            let names = frames.into_iter().flat_map(|frame| self.located(frame));
            return names.chain(reason.map(String::from)).collect();
        }
        let Some(stack) = self.snapshot.user_stacks.get(&name) else {
            return Vec::new();
        };
        let frames = self.user_frames(stack);
        let processes = self.processes.borrow();
        let name = |(index, address): (usize, u64)| {
            let Some(place) = processes.find(stack.tgid, address) else {
                let tgid = stack.tgid;
                return vec![format!(
                    "{address:#x} (process {tgid} ended before it could be read)"
                )];
            };
            match &place.module {
                Some(module) => self
                    .symbols
                    .user(module, place.file_offset, index > 0)
                    .to_vec(),
                None => vec![format!("{}+{:#x}", place.name, place.file_offset)],
            }
        };
        let mut names: Vec<String> = frames.into_iter().enumerate().flat_map(name).collect();
        if self.snapshot.detail.callsites {
            names.push("(further frames: the stack was lost)".to_string());
        }
        names
    }

    fn located(&self, frame: &Located) -> Vec<String> {
        match &frame.module {
            Some(module) => {
                let names = self.symbols.user(module, frame.offset, frame.is_return);
                names.to_vec()
            }
            None if frame.mapping.is_empty() => vec![format!("{:#x}", frame.offset)],
            None => {
                let short = frame.mapping.rsplit('/').next().unwrap_or_default();
                vec![format!("{short}+{:#x}", frame.offset)]
            }
        }
    }

    /// The addresses of a user stack; of words of the stack, the one that is the return address.
    fn user_frames(&self, stack: &types::user_stack) -> Vec<u64> {
        if stack.depth != tables::RAW_STACK {
            let depth = (stack.depth as usize).min(stack.frames.len());
            // Frame pointers of programs built without them lead anywhere: what cannot be an
            // address of the program ends the stack.
            let is_user = |address: &u64| (1..USER_END).contains(address);
            return stack.frames[..depth]
                .iter()
                .copied()
                .take_while(is_user)
                .collect();
        }
        let ip = stack.frames[0];
        let words = &stack.frames[1..];
        let wrapper = self
            .processes
            .borrow_mut()
            .wrapper(stack.tgid, ip)
            .unwrap_or_default();
        let caller = match wrapper.rule {
            tables::WRAPPER_FROM_SP => usize::try_from(wrapper.offset / 8).ok(),
            _ => None,
        };
        let caller = caller.and_then(|index| words.get(index)).copied();
        [ip].into_iter().chain(caller).collect()
    }
}

/// The kernel leaves its lock functions out of a sleeping task's stack; the contention events tell
/// which kind of lock it was, and the rules want to see it.
pub(crate) fn lock_frame(flags: u32) -> Option<&'static str> {
    let is = |flag: u32| flags & flag != 0;
    Some(if is(tables::LOCK_MUTEX) {
        "mutex_lock"
    } else if is(tables::LOCK_PERCPU) {
        "percpu_rwsem_wait"
    } else if is(tables::LOCK_RT) {
        "rt_mutex_slowlock"
    } else if is(tables::LOCK_WRITE) {
        "rwsem_down_write_slowpath"
    } else if is(tables::LOCK_READ) {
        "rwsem_down_read_slowpath"
    } else {
        return None;
    })
}
