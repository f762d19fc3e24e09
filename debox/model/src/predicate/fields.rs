//! The fields of a record that a predicate can test, and their names.

/// A field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    Syscall,
    Error,
    Label,
    Class,
    Comm,
    CpuOwner,
    Restarted,
    Number(Number),
}

/// Fields that are numbers. The probes use the same discriminants (debox/probe/trigger.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Number {
    Ret,
    Wall,
    Cpu,
    Blocked,
    Runqueue,
    Preempted,
    Irq,
    Spin,
    Longest,
    Sleeps,
    FaultsMinor,
    FaultsMajor,
    Pid,
    Tid,
    Arg0,
    Arg1,
    Arg2,
    Throttled,
}

/// How a number is written in a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Time,
    Count,
    /// A signed number.
    Signed,
    /// A register's content: an unsigned word.
    Word,
}

impl Number {
    pub const ALL: [Number; 18] = [
        Number::Ret,
        Number::Wall,
        Number::Cpu,
        Number::Blocked,
        Number::Runqueue,
        Number::Preempted,
        Number::Irq,
        Number::Spin,
        Number::Longest,
        Number::Sleeps,
        Number::FaultsMinor,
        Number::FaultsMajor,
        Number::Pid,
        Number::Tid,
        Number::Arg0,
        Number::Arg1,
        Number::Arg2,
        Number::Throttled,
    ];

    pub(super) fn kind(self) -> Kind {
        match self {
            Number::Ret => Kind::Signed,
            Number::Wall
            | Number::Cpu
            | Number::Blocked
            | Number::Runqueue
            | Number::Preempted
            | Number::Irq
            | Number::Spin
            | Number::Longest
            | Number::Throttled => Kind::Time,
            Number::Sleeps
            | Number::FaultsMinor
            | Number::FaultsMajor
            | Number::Pid
            | Number::Tid => Kind::Count,
            Number::Arg0 | Number::Arg1 | Number::Arg2 => Kind::Word,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Number::Ret => "ret",
            Number::Wall => "wall",
            Number::Cpu => "cpu",
            Number::Blocked => "blocked",
            Number::Runqueue => "runqueue",
            Number::Preempted => "preempted",
            Number::Irq => "irq",
            Number::Spin => "spin",
            Number::Longest => "longest",
            Number::Sleeps => "sleeps",
            Number::FaultsMinor => "faults_minor",
            Number::FaultsMajor => "faults_major",
            Number::Pid => "pid",
            Number::Tid => "tid",
            Number::Arg0 => "arg0",
            Number::Arg1 => "arg1",
            Number::Arg2 => "arg2",
            Number::Throttled => "throttled",
        }
    }
}

impl Field {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Field> {
        let names = [
            Field::Syscall,
            Field::Error,
            Field::Label,
            Field::Class,
            Field::Comm,
            Field::CpuOwner,
            Field::Restarted,
        ];
        let numbers = Number::ALL.into_iter().map(Field::Number);
        names.into_iter().chain(numbers)
    }

    /// The name in predicates.
    pub fn name(self) -> &'static str {
        match self {
            Field::Syscall => "syscall",
            Field::Error => "error",
            Field::Label => "label",
            Field::Class => "class",
            Field::Comm => "comm",
            Field::CpuOwner => "cpu_owner",
            Field::Restarted => "restarted",
            Field::Number(number) => number.name(),
        }
    }
}

/// A place where a call slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site<'a> {
    pub label: &'a str,
    pub class: &'a str,
}

/// Who had the CPU for most of the time in which a call waited for one, without the time that a
/// quota took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuOwner<'a> {
    /// The call did not wait, or no task had the CPU.
    Nobody,
    /// The process's name.
    Named(&'a str),
    /// Not measured, not known, or not shown.
    Unknown,
}

/// A record that predicates can be evaluated for. `None` stands for unknown values.
pub trait Fields {
    /// The call's number: with 0x10000 for the 32-bit table, 0xffffff for the time between calls.
    fn call(&self) -> u32;

    /// Times are in nanoseconds. Arguments are unsigned; `Ret` is signed.
    fn number(&self, field: Number) -> Option<i128>;

    /// Whether it is a piece of a call that the kernel restarts.
    fn is_restarted(&self) -> bool;

    /// The thread's name.
    fn comm(&self) -> Option<&str>;

    /// Who had the CPU that the call waited for.
    fn cpu_owner(&self) -> CpuOwner<'_>;

    /// The sites at which the call slept; `None` for an unknown site.
    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>>;
}

/// The error of a return value; 0 for none.
pub(super) fn error_of(record: &impl Fields) -> Option<i32> {
    let ret = record.number(Number::Ret)?;
    let is_error = (-4095..0).contains(&ret) && !record.is_restarted();
    Some(if is_error { -ret as i32 } else { 0 })
}
