//! Turns stacks into sites, labels and call sites, in words.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use crate::callers::{after_switch, is_of_script, is_outermost, is_plumbing};
use crate::frame::{Frame, Kind};
use crate::labelled::Labelled;
use crate::module::Module;
use crate::process::Processes;
use crate::sleep_place::SleepPlace;
use crate::stack_table::StackTable;
use crate::stacks::{Located, Made, Stacks};
use crate::symbols::Symbols;
use crate::tables::{self, types};

/// The end of a program's address space on x86-64.
const USER_END: u64 = 1 << 47;

/// A sleep, in words.
pub(crate) struct Explained {
    pub label: String,
    pub class: String,
    pub site: Frame,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// A user stack, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserStack {
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// The innermost frame that is the program's own.
    pub caller: Option<Frame>,
}

/// The remark for a call that could not send its stack to be unwound.
const FURTHER_LOST: &str = "(further frames: the stack was lost)";

/// The site of a sleep whose stack is not known.
pub(crate) const UNKNOWN: &str = "unknown";

/// Looks up the session's stacks.
pub(crate) struct Explainer<'a> {
    symbols: Rc<Symbols>,
    processes: &'a RefCell<Processes>,
    stacks: &'a RefCell<Stacks>,
    table: &'a StackTable,
    /// When the explainer was made: names unknown before that are looked up again.
    began: Instant,
}

impl<'a> Explainer<'a> {
    pub fn new(
        table: &'a StackTable,
        processes: &'a RefCell<Processes>,
        stacks: &'a RefCell<Stacks>,
    ) -> Explainer<'a> {
        Explainer::with_symbols(table, processes, stacks, Rc::default())
    }

    /// Uses symbols in which kernel addresses may already be known.
    pub fn with_symbols(
        table: &'a StackTable,
        processes: &'a RefCell<Processes>,
        stacks: &'a RefCell<Stacks>,
        symbols: Rc<Symbols>,
    ) -> Explainer<'a> {
        Explainer {
            symbols,
            processes,
            stacks,
            table,
            began: Instant::now(),
        }
    }

    /// A sleep at a place whose kernel stack is in the table.
    pub fn sleep(&self, place: SleepPlace) -> Explained {
        let addresses = self.table.kernel.get(&place.stack);
        let addresses = addresses.map(Vec::as_slice).unwrap_or_default();
        let args = self.table.args.get(&place.stack).copied();
        self.stack(place.call, args, addresses, place.lock_flags)
    }

    /// The same for the addresses themselves, innermost first, and for the arguments that rules
    /// look at.
    pub fn stack(
        &self,
        call: u32,
        args: Option<[u64; 3]>,
        addresses: &[u64],
        lock_flags: u32,
    ) -> Explained {
        in_words(&self.symbols, call, args, addresses, lock_flags)
    }

    /// Functions of the kernel, innermost first.
    pub fn kernel_frames(&self, addresses: &[u64]) -> Vec<Frame> {
        let addresses = addresses.iter();
        addresses
            .map(|address| self.symbols.kernel(*address))
            .collect()
    }

    /// The path of a file in which a place had no name.
    pub fn path_of_nameless(&self, file: &str) -> Option<PathBuf> {
        self.symbols.path_of_nameless(file)
    }

    /// User stacks that were captured but could not be kept.
    pub fn stacks_lost(&self) -> u64 {
        self.stacks.borrow().lost
    }

    /// The user stack with this name.
    pub fn user_stack(&self, name: u64) -> UserStack {
        with_script(self.named_stack(name))
    }

    /// The stack of a sample.
    pub fn sampled_stack(&self, id: u32) -> UserStack {
        let stacks = self.stacks.borrow();
        let (frames, reason) = stacks.sampled(id);
        with_script(self.in_words(frames, reason))
    }

    fn in_words(&self, frames: Vec<&Located>, reason: Option<&'static str>) -> UserStack {
        let mut named = UserStack::default();
        for frame in frames {
            self.add_located(&mut named, frame);
            if let Some(reason) = named.frames.last().and_then(after_switch) {
                named.frames.push(Frame::remark(reason));
                return named;
            }
        }
        if !named.frames.last().is_some_and(is_outermost) {
            named.frames.extend(reason.map(Frame::remark));
        }
        named
    }

    fn named_stack(&self, name: u64) -> UserStack {
        if let Some((frames, reason)) = self.stacks.borrow().frames(name) {
            return self.in_words(frames, reason);
        }
        let mut named = UserStack::default();
        let Some(stack) = self.table.user.get(&name) else {
            return named;
        };
        let frames = self.user_frames(stack);
        let processes = self.processes.borrow();
        for (index, address) in frames.into_iter().enumerate() {
            let Some(place) = processes.find(stack.tgid, address) else {
                let tgid = stack.tgid;
                let gone = format!("process {tgid} ended before it could be read");
                named.frames.push(Frame {
                    place: Some(gone),
                    ..Frame::address(address)
                });
                continue;
            };
            match &place.module {
                Some(module) => self.add(&mut named, module, place.file_offset, index > 0),
                None => {
                    let lookup = address.wrapping_sub(u64::from(index > 0));
                    let made = self.made_frame(stack.tgid, lookup, index > 0);
                    let in_memory = || Frame::function(&*place.name, place.file_offset);
                    let frame = made.unwrap_or_else(in_memory);
                    named.frames.push(frame);
                }
            }
        }
        if self.table.wants_whole {
            named.frames.push(Frame::remark(FURTHER_LOST));
        }
        named
    }

    /// The name of code that the process made at run time, if the process has named it.
    fn made_frame(&self, tgid: u32, address: u64, is_return: bool) -> Option<Frame> {
        let stacks = self.stacks.borrow();
        let (function, offset) = stacks.made_function(tgid, address, self.began)?;
        Some(made_frame(&function, offset + u64::from(is_return)))
    }

    fn add_located(&self, to: &mut UserStack, frame: &Located) {
        match frame.made {
            Some(Made::Named) => return to.frames.push(made_frame(&frame.mapping, frame.offset)),
            Some(Made::Unnamed { tgid }) => {
                let address = frame.offset.wrapping_sub(u64::from(frame.is_return));
                // The code may have been named since.
                if let Some(made) = self.made_frame(tgid, address, frame.is_return) {
                    return to.frames.push(made);
                }
            }
            None => {}
        }
        match &frame.module {
            Some(module) => self.add(to, module, frame.offset, frame.is_return),
            None if frame.mapping.is_empty() => to.frames.push(Frame::address(frame.offset)),
            None => {
                let short = frame.mapping.rsplit('/').next().unwrap_or_default();
                to.frames.push(Frame::function(short, frame.offset));
            }
        }
    }

    fn add(&self, to: &mut UserStack, module: &Module, offset: u64, is_return: bool) {
        let short = module.short_name();
        for frame in self.symbols.user(module, offset, is_return).iter() {
            if to.caller.is_none() && !is_plumbing(&short, module.is_static(), &frame.function) {
                to.caller = Some(frame.clone());
            }
            to.frames.push(frame.clone());
        }
    }

    /// The addresses of a user stack. If it was sent as words of the stack, finds the return
    /// addresses among them.
    fn user_frames(&self, stack: &types::user_stack) -> Vec<u64> {
        if stack.depth != tables::RAW_STACK {
            let depth = (stack.depth as usize).min(stack.frames.len());
            // Frame pointers of programs built without them are arbitrary: a value that cannot be
            // an address of the program ends the stack.
            let is_user = |address: &u64| (1..USER_END).contains(address);
            return stack.frames[..depth]
                .iter()
                .copied()
                .take_while(is_user)
                .collect();
        }
        let mut processes = self.processes.borrow_mut();
        let words = &stack.frames[1..];
        let mut frames = vec![stack.frames[0]];
        // The stack pointer of the last frame.
        let mut above = 0;
        while frames.len() < words.len() {
            let last = frames[frames.len() - 1];
            let wrapper = processes.wrapper(stack.tgid, last).unwrap_or_default();
            let at = usize::try_from(wrapper.offset / 8)
                .ok()
                .map(|at| above + at);
            let at = at.filter(|_| wrapper.rule == tables::WRAPPER_FROM_SP);
            let Some((at, caller)) = at.and_then(|at| Some((at, *words.get(at)?))) else {
                break;
            };
            frames.push(caller);
            above = at + 1;
        }
        frames
    }
}

/// If a script runs, only its functions count as the program's own; the rest is its interpreter.
fn with_script(mut stack: UserStack) -> UserStack {
    let script = stack.frames.iter().find(|frame| is_of_script(frame));
    if let Some(script) = script {
        stack.caller = Some(script.clone());
    }
    stack
}

/// The frame of a function that was made at run time.
fn made_frame(function: &str, offset: u64) -> Frame {
    Frame {
        kind: Kind::Made,
        ..Frame::function(function, offset)
    }
}

/// Explains a sleep at these addresses, innermost first, of a call with these arguments.
pub(crate) fn in_words(
    symbols: &Symbols,
    call: u32,
    args: Option<[u64; 3]>,
    addresses: &[u64],
    lock_flags: u32,
) -> Explained {
    let frames: Vec<Frame> = addresses.iter().map(|a| symbols.kernel(*a)).collect();
    let labelled = Labelled::of(call, args, &frames, lock_flags);
    let site = labelled.site.cloned();
    Explained {
        label: labelled.label,
        class: labelled.class.to_string(),
        site: site.unwrap_or_else(|| Frame::remark(UNKNOWN)),
        frames,
    }
}
