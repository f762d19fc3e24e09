//! Unwinds registers and a copy of the stack to frames, and records the words that the result
//! depends on.

use std::rc::Rc;

use super::rule::{evaluate, FrameBase, Machine, Rule, Saved};
use super::rule::{R10, RBP, RBX, RDI, REGISTERS, RETURN_ADDRESS, RSP};

/// The most frames kept of one stack.
pub(crate) const MAX_FRAMES: usize = 64;
/// Values within this distance of the stack pointer are addresses of the stack.
const STACK_REACH: u64 = 1 << 30;

/// The registers that a call preserves for its caller, as of the system call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub bx: u64,
    /// Not preserved by a call, but by the system call itself, and `vfork` returns through it.
    pub di: u64,
    /// r12 to r15.
    pub high: [u64; 4],
    /// For a stack taken at an arbitrary instruction: the register by which functions that align
    /// their stack find it until they have saved it. `None`: at a system call.
    pub interrupted: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// For interrupted frames, the address of the instruction itself; for others, of the one after
    /// the call.
    pub address: u64,
    pub is_return: bool,
}

impl Frame {
    /// An address inside the instruction that made the call.
    pub fn lookup(&self) -> u64 {
        self.address.wrapping_sub(u64::from(self.is_return))
    }
}

/// Why a stack has no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The outermost function of the thread.
    Complete,
    /// [`MAX_FRAMES`] was reached.
    TooManyFrames,
    /// The stack continues beyond the copy.
    TooDeep,
    /// There was no room for the callers of a sample's stack.
    NoRoom,
    /// Neither tables nor frame pointers lead on from the last frame.
    NoTables,
    /// A 32-bit program: not tried.
    Compat,
    /// The process was gone before all its mappings were known.
    Gone,
    /// The file that the code is from could not be opened.
    NoFile,
    /// The tables lead to an address that is not code: the stack was switched, or the tables are
    /// wrong.
    NoCode,
}

/// A word that was used to find the frames. If all of these match, the frames are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Check {
    pub at: At,
    pub value: u64,
    /// Whether only the difference between the value and the stack pointer matters.
    pub is_relative: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// Bytes above the stack pointer.
    Stack(u64),
    FramePointer,
    StackPointer,
}

#[derive(Debug)]
pub(crate) struct Walk {
    pub frames: Vec<Frame>,
    pub end: End,
    /// `None`: the result depends on a register that cannot be checked.
    pub checks: Option<Vec<Check>>,
}

/// The program whose stack is unwound.
pub(super) trait Program {
    /// The code at an address.
    fn code(&mut self, address: u64) -> Code;
    /// Whether the instruction before this one is a call, as far as its bytes are available.
    fn follows_call(&mut self, address: u64) -> bool;
}

pub(super) enum Code {
    Rule(Rc<Rule>),
    NoRule,
    /// Inside the call of one of Python's trampolines.
    PythonTrampoline,
    /// The file of the code could not be opened; the value is the reason to report if the stack
    /// ends here.
    NoFile(End),
    /// Nothing executable is mapped there.
    None,
    /// The process ended before the mapping was known.
    Gone,
}

#[derive(Clone, Copy)]
enum Origin {
    /// The initial value of a register: of one that can be checked, or of another.
    FramePointer,
    Initial,
    Stack(u64),
    /// Follows from what has been checked already.
    Derived,
}

#[derive(Clone, Copy)]
struct Held {
    value: u64,
    origin: Origin,
}

fn derived(value: u64) -> Held {
    Held {
        value,
        origin: Origin::Derived,
    }
}

struct Walker<'a> {
    stack: &'a [u8],
    first_sp: u64,
    registers: [Option<Held>; REGISTERS],
    checks: Vec<Check>,
    is_checkable: bool,
    ran_out: bool,
    is_innermost: bool,
}

/// A walk with only the frame of the call itself, if the rest is not attempted.
pub(super) fn innermost_only(registers: &Registers) -> Walk {
    Walk {
        frames: vec![Frame {
            address: registers.ip,
            is_return: true,
        }],
        end: End::Compat,
        checks: Some(Vec::new()),
    }
}

/// Finds the frames.
pub(super) fn walk(registers: &Registers, stack: &[u8], program: &mut impl Program) -> Walk {
    let mut walker = Walker::new(registers, stack);
    let mut frames = Vec::new();
    let mut frame = Frame {
        address: registers.ip,
        is_return: registers.interrupted.is_none(),
    };
    let end = loop {
        let code = program.code(frame.lookup());
        let is_trampoline = matches!(code, Code::PythonTrampoline);
        let (rule, without_rule) = match code {
            Code::None if !frames.is_empty() => break End::NoCode,
            Code::Gone if !frames.is_empty() => break End::Gone,
            Code::Gone => (None, End::Gone),
            Code::NoFile(why) => (None, why),
            Code::None | Code::NoRule | Code::PythonTrampoline => (None, End::NoTables),
            Code::Rule(rule) => (Some(rule), End::NoTables),
        };
        frames.push(frame);
        let caller = match &rule {
            Some(rule) => walker.follow(rule),
            // The function may not have set its own frame pointer yet.
            None if !frame.is_return => break without_rule,
            None if is_trampoline => walker.follow_python_trampoline(),
            None => walker.follow_frame_pointer(),
        };
        match caller {
            Err(End::NoTables) => break without_rule,
            Err(end) => break end,
            // The frame pointer register may be used for anything.
            Ok(to) if rule.is_none() && !program.follows_call(to) => break without_rule,
            Ok(_) if frames.len() == MAX_FRAMES => break End::TooManyFrames,
            Ok(address) => {
                frame = Frame {
                    address,
                    is_return: !rule.is_some_and(|rule| rule.is_signal),
                };
            }
        }
    };
    Walk {
        frames,
        end,
        checks: walker.is_checkable.then_some(walker.checks),
    }
}

impl<'a> Walker<'a> {
    fn new(from: &Registers, stack: &'a [u8]) -> Walker<'a> {
        let mut registers = [None; REGISTERS];
        let mut set = |number: u16, value: u64, origin: Origin| {
            registers[usize::from(number)] = Some(Held { value, origin });
        };
        set(RBX, from.bx, Origin::Initial);
        set(RBP, from.bp, Origin::FramePointer);
        set(RDI, from.di, Origin::Initial);
        // These two are the key by which stacks are looked up.
        set(RSP, from.sp, Origin::Derived);
        set(RETURN_ADDRESS, from.ip, Origin::Derived);
        for (number, value) in (12..).zip(from.high) {
            set(number, value, Origin::Initial);
        }
        if let Some(value) = from.interrupted {
            set(R10, value, Origin::Initial);
        }
        Walker {
            stack,
            first_sp: from.sp,
            registers,
            checks: Vec::new(),
            is_checkable: true,
            ran_out: false,
            is_innermost: true,
        }
    }

    /// Reads a word of the stack's copy.
    fn read(&mut self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.first_sp)?).ok()?;
        let word = at.checked_add(8).and_then(|end| self.stack.get(at..end));
        if word.is_none() && (at as u64) < STACK_REACH {
            self.ran_out = true;
        }
        Some(u64::from_le_bytes(word?.try_into().ok()?))
    }

    /// Records that the result depends on this word. `moves`: it only depends on the word's
    /// distance from the stack pointer, so that the same frames at another address are the same
    /// stack.
    fn check(&mut self, at: At, value: u64, moves: bool) {
        let distance = value.wrapping_sub(self.first_sp);
        let is_relative = moves && distance.wrapping_add(STACK_REACH) < 2 * STACK_REACH;
        let check = Check {
            at,
            value: if is_relative { distance } else { value },
            is_relative,
        };
        if !self.checks.contains(&check) {
            self.checks.push(check);
        }
    }

    fn at(&self, address: u64) -> At {
        At::Stack(address.wrapping_sub(self.first_sp))
    }

    /// The value of a register that a frame's place depends on. `moves`: only its distance from the
    /// stack pointer matters.
    fn depend_on(&mut self, number: u16, moves: bool) -> Option<u64> {
        let held = (*self.registers.get(usize::from(number))?)?;
        match held.origin {
            Origin::FramePointer => self.check(At::FramePointer, held.value, moves),
            Origin::Initial => self.is_checkable = false,
            Origin::Stack(address) => self.check(self.at(address), held.value, moves),
            // It follows from the stack pointer and from what has been checked.
            Origin::Derived if moves || number == RETURN_ADDRESS => {}
            Origin::Derived => self.pin(),
        }
        Some(held.value)
    }

    /// Records that the result is only valid for this value of the stack pointer.
    fn pin(&mut self) {
        self.check(At::StackPointer, self.first_sp, false);
    }

    fn frame_base(&mut self, rule: &Rule) -> Option<u64> {
        match &rule.base {
            FrameBase::Register(number, offset) => {
                if *number == RETURN_ADDRESS {
                    self.pin();
                }
                Some(self.depend_on(*number, true)?.wrapping_add_signed(*offset))
            }
            FrameBase::Expression(bytes) => {
                self.pin();
                evaluate(bytes, rule.encoding, None, self)
            }
        }
    }

    /// A register of the caller.
    fn saved(&mut self, number: u16, saved: &Saved, base: u64, rule: &Rule) -> Option<Held> {
        let in_memory = |walker: &mut Self, address: u64| {
            Some(Held {
                value: walker.read(address)?,
                origin: Origin::Stack(address),
            })
        };
        match saved {
            Saved::Undefined => None,
            Saved::Same => self.registers[usize::from(number)],
            Saved::At(offset) => in_memory(self, base.wrapping_add_signed(*offset)),
            Saved::Is(offset) => Some(derived(base.wrapping_add_signed(*offset))),
            Saved::InRegister(other) => {
                if *other == RETURN_ADDRESS {
                    self.pin();
                }
                *self.registers.get(usize::from(*other))?
            }
            Saved::AtExpression(bytes) => {
                self.pin();
                let address = evaluate(bytes, rule.encoding, Some(base), self)?;
                in_memory(self, address)
            }
            Saved::IsExpression(bytes) => {
                self.pin();
                evaluate(bytes, rule.encoding, Some(base), self).map(derived)
            }
        }
    }

    /// Moves to the caller: restores its registers, and returns the frame's return address.
    fn follow(&mut self, rule: &Rule) -> Result<u64, End> {
        let Some(to) = rule.saved(RETURN_ADDRESS) else {
            return Err(End::Complete);
        };
        if *to == Saved::Undefined {
            return Err(End::Complete);
        }
        self.ran_out = false;
        let base = self.frame_base(rule).ok_or(self.why())?;
        let mut registers = self.registers;
        // Registers that the ABI lets a function change are lost unless the tables have their
        // place.
        for number in [0, 1, 2, 4, 5, 8, 9, 10, 11] {
            registers[number] = None;
        }
        registers[usize::from(RSP)] = Some(derived(base));
        for (number, saved) in &rule.saved {
            registers[usize::from(*number)] = self.saved(*number, saved, base, rule);
        }
        let to = registers[usize::from(RETURN_ADDRESS)].ok_or(self.why())?;
        self.return_to(registers, to)
    }

    /// Without tables: the frame pointer points to the caller's frame pointer, with the return
    /// address above it.
    fn follow_frame_pointer(&mut self) -> Result<u64, End> {
        let Some(pointer) = self.depend_on(RBP, true) else {
            return Err(End::NoTables);
        };
        if pointer == 0 {
            return Err(End::Complete); // as the kernel and Go begin a stack
        }
        let Some(above) = pointer.checked_add(8).filter(|_| pointer % 8 == 0) else {
            return Err(End::NoTables);
        };
        self.ran_out = false;
        let (Some(callers), Some(to)) = (self.read(pointer), self.read(above)) else {
            return Err(self.why());
        };
        let mut registers = [None; REGISTERS];
        registers[usize::from(RBP)] = Some(Held {
            value: callers,
            origin: Origin::Stack(pointer),
        });
        registers[usize::from(RSP)] = Some(derived(above.wrapping_add(8)));
        let to = Held {
            value: to,
            origin: Origin::Stack(above),
        };
        self.return_to(registers, to)
    }

    /// Python's trampolines call with either a word of padding or their caller's frame pointer on the stack; the
    /// return address is above it in both cases. (CPython 3.12 to 3.14: `Python/asm_trampoline.S`.)
    fn follow_python_trampoline(&mut self) -> Result<u64, End> {
        let value = |number: u16| self.registers[usize::from(number)].map(|held| held.value);
        // Which of the two it is follows from the address, which is checked.
        let sp = value(RSP).ok_or(End::NoTables)?;
        if value(RBP) == Some(sp) {
            return self.follow_frame_pointer();
        }
        self.ran_out = false;
        let above = sp.wrapping_add(8);
        let to = self.read(above).ok_or(self.why())?;
        let mut registers = self.registers;
        registers[usize::from(RSP)] = Some(derived(above.wrapping_add(8)));
        let to = Held {
            value: to,
            origin: Origin::Stack(above),
        };
        self.return_to(registers, to)
    }

    fn return_to(&mut self, registers: [Option<Held>; REGISTERS], to: Held) -> Result<u64, End> {
        let sp = registers[usize::from(RSP)];
        for (held, moves) in [(Some(to), false), (sp, true)] {
            match held.map(|held| (held.origin, held.value)) {
                Some((Origin::Stack(address), value)) => self.check(self.at(address), value, moves),
                Some((Origin::FramePointer, value)) => self.check(At::FramePointer, value, moves),
                Some((Origin::Initial, _)) => self.is_checkable = false,
                Some((Origin::Derived, _)) | None => {}
            }
        }
        if to.value == 0 {
            return Err(End::Complete);
        }
        let sp = |registers: &[Option<Held>; REGISTERS]| {
            registers[usize::from(RSP)].map_or(0, |held| held.value)
        };
        let (above, below) = (sp(&registers), sp(&self.registers));
        // Callers are at higher addresses. (The innermost function may have its return address in a
        // register.)
        if above < below || (above == below && !self.is_innermost) {
            return Err(End::NoCode);
        }
        self.is_innermost = false;
        self.registers = registers;
        self.registers[usize::from(RETURN_ADDRESS)] = Some(derived(to.value));
        Ok(to.value)
    }

    /// Why the frame's words could not be read.
    fn why(&self) -> End {
        if self.ran_out {
            End::TooDeep
        } else {
            End::NoTables
        }
    }
}

impl Machine for Walker<'_> {
    fn register(&mut self, number: u16) -> Option<u64> {
        self.depend_on(number, false)
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        let value = self.read(address)?;
        self.check(self.at(address), value, false);
        Some(value)
    }
}
