//! What the probes saw, as it is sent to the client that looks it up, and the client's answers: field by
//! field.
//!
//! The probes' own structs contain more, such as kernel addresses. Fields that are added to them are not
//! sent until they are listed here, which requires a decision on who may see them.

use serde::{Deserialize, Serialize};

use crate::tables::{self, types};

/// Defines a struct with the named fields, all of plain types, of one of the probes' structs.
macro_rules! fields_of {
    ($(#[$about:meta])* $name:ident of $type:ident { $($field:ident: $kind:ty),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($field: $kind),+
        }

        impl From<&types::$type> for $name {
            fn from(from: &types::$type) -> $name {
                $name { $($field: from.$field),+ }
            }
        }

        impl From<&$name> for types::$type {
            #[allow(clippy::needless_update)] // some have all fields
            fn from(from: &$name) -> types::$type {
                types::$type {
                    $($field: from.$field,)+
                    ..types::$type::default()
                }
            }
        }
    };
}
pub(super) use fields_of;

fields_of! {
    /// A thread's life without the probes' internal fields.
    Life of thread {
        tid: u32,
        tgid: u32,
        index: u32,
        comm: [i8; 16],
        state: u32,
        mode: u32,
        call: u32,
        has_parts: u32,
        flags: u32,
        begin_ns: u64,
        stamp_ns: u64,
        calls: u64,
        between: [u64; tables::PARTS],
        in_calls: [u64; tables::PARTS],
        parts: [u64; tables::PARTS],
        between_max_ns: u64,
        between_spin_ns: u64,
        stolen_ns: u64,
        spin_ns: u64,
        call_faults_minor: u64,
        call_faults_major: u64,
        birth_ns: u64,
        birth_faults_minor: u64,
        birth_faults_major: u64,
        end_ns: u64,
        end_faults_minor: u64,
        end_faults_major: u64,
        outside: [u64; tables::PARTS],
        unstamped: u32,
    }
}

/// A file that a process has mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    start: u64,
    end: u64,
    page_offset: u64,
    inode: u64,
    device: u32,
    /// Up to its terminating zero.
    name: Vec<u8>,
}

impl From<&types::mapped_file> for File {
    fn from(file: &types::mapped_file) -> File {
        let name = file.name.iter().map(|byte| *byte as u8);
        File {
            start: file.start,
            end: file.end,
            page_offset: file.page_offset,
            inode: file.inode,
            device: file.device,
            name: name.take_while(|byte| *byte != 0).collect(),
        }
    }
}

impl From<&File> for types::mapped_file {
    fn from(file: &File) -> types::mapped_file {
        let mut made = types::mapped_file {
            start: file.start,
            end: file.end,
            page_offset: file.page_offset,
            inode: file.inode,
            device: file.device,
            ..types::mapped_file::default()
        };
        for (to, byte) in made.name.iter_mut().zip(&file.name) {
            *to = *byte as i8;
        }
        made
    }
}

/// A process's name from its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    tgid: u32,
    parent: u32,
    reason: u32,
    at_ns: u64,
    words_bytes: u32,
    words: Vec<u8>,
}

impl From<&types::title_seen> for Title {
    fn from(seen: &types::title_seen) -> Title {
        let words = seen.words.iter().map(|byte| *byte as u8);
        Title {
            tgid: seen.tgid,
            parent: seen.parent,
            reason: seen.reason,
            at_ns: seen.at_ns,
            words_bytes: seen.words_bytes,
            words: words.take(seen.bytes as usize).collect(),
        }
    }
}

impl From<&Title> for types::title_seen {
    fn from(title: &Title) -> types::title_seen {
        let mut seen = types::title_seen {
            kind: tables::EVENT_TITLE,
            tgid: title.tgid,
            parent: title.parent,
            reason: title.reason,
            at_ns: title.at_ns,
            words_bytes: title.words_bytes,
            ..types::title_seen::default()
        };
        for (to, byte) in seen.words.iter_mut().zip(&title.words) {
            *to = *byte as i8;
            seen.bytes += 1;
        }
        seen
    }
}

/// A call site seen for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    tgid: u32,
    ip: u64,
    at_ip: File,
    program: File,
}

impl From<&types::call_site_seen> for CallSite {
    fn from(seen: &types::call_site_seen) -> CallSite {
        CallSite {
            tgid: seen.tgid,
            ip: seen.ip,
            at_ip: File::from(&seen.at_ip),
            program: File::from(&seen.program),
        }
    }
}

impl From<&CallSite> for types::call_site_seen {
    fn from(seen: &CallSite) -> types::call_site_seen {
        types::call_site_seen {
            kind: tables::EVENT_CALL_SITE,
            tgid: seen.tgid,
            ip: seen.ip,
            at_ip: types::mapped_file::from(&seen.at_ip),
            program: types::mapped_file::from(&seen.program),
        }
    }
}

/// What a call waited for, and the descriptor that its process has for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    tgid: u32,
    tid: u32,
    fd: i32,
    kind: u32,
    what: u32,
    device: u32,
    memory_of: u32,
    id: u64,
}

impl From<&types::resource_seen> for Resource {
    fn from(seen: &types::resource_seen) -> Resource {
        let mut resource = seen.resource;
        hide_address(&mut resource);
        Resource {
            tgid: seen.tgid,
            tid: seen.tid,
            fd: seen.fd,
            kind: resource.kind,
            what: resource.what,
            device: resource.device,
            memory_of: resource.tgid,
            id: resource.id,
        }
    }
}

impl From<&Resource> for types::resource_seen {
    fn from(seen: &Resource) -> types::resource_seen {
        types::resource_seen {
            kind: tables::EVENT_RESOURCE,
            tgid: seen.tgid,
            tid: seen.tid,
            fd: seen.fd,
            resource: types::resource {
                kind: seen.kind,
                what: seen.what,
                device: seen.device,
                tgid: seen.memory_of,
                id: seen.id,
            },
        }
    }
}

/// Hides the address that identifies a lock which does not belong to one of the call's own files.
pub fn hide_address(resource: &mut types::resource) {
    if resource.kind == tables::RESOURCE_LOCK && resource.what == 0 {
        resource.id = 0;
    }
}

fields_of! {
    /// A thread's registers at the end of its call, and the thread.
    Registers of stack_ask {
        name: u64,
        ip: u64,
        sp: u64,
        bp: u64,
        bx: u64,
        di: u64,
        r10: u64,
        r12: u64,
        r13: u64,
        r14: u64,
        r15: u64,
        code_pages: u64,
        tgid: u32,
        parent: u32,
        image: u16,
        is_compat: u8,
        is_interrupted: u8,
    }
}

/// A user stack to be unwound; or, without a name, mapped code and its path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    registers: Registers,
    at_ip: File,
    program: File,
    words: Vec<u8>,
}

impl Stack {
    /// `None` if this is not one of the probes' messages.
    pub fn of(message: &[u8]) -> Option<Stack> {
        let ask = tables::read_value::<types::stack_ask>(message)?;
        let words = &message[std::mem::size_of::<types::stack_ask>()..];
        Some(Stack {
            registers: Registers::from(&ask),
            at_ip: File::from(&ask.at_ip),
            program: File::from(&ask.program),
            words: words[..words.len().min(ask.bytes as usize)].to_vec(),
        })
    }

    /// The message as the probes sent it.
    pub fn message(&self) -> Vec<u8> {
        let ask = types::stack_ask {
            bytes: self.words.len() as u32,
            at_ip: types::mapped_file::from(&self.at_ip),
            program: types::mapped_file::from(&self.program),
            ..types::stack_ask::from(&self.registers)
        };
        [tables::bytes_of(&ask), &self.words].concat()
    }
}

fields_of! {
    /// The key under which a user stack is recognised.
    ShapeKey of user_shape_key {
        ip: u64,
        tgid: u32,
        image: u16,
        depth: u8,
        way: u8,
    }
}

/// How a user stack is recognised: by the values of some of its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    name: u64,
    checks: Vec<Check>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Check {
    value: u64,
    at: u32,
}

impl From<&types::user_shape> for Shape {
    fn from(shape: &types::user_shape) -> Shape {
        let checks = shape.value.iter().zip(shape.at);
        let checks = checks.map(|(value, at)| Check { value: *value, at });
        Shape {
            name: shape.name,
            checks: checks.take(shape.checks as usize).collect(),
        }
    }
}

impl Shape {
    /// `None` if it has more checks than the probes look at.
    pub fn for_probes(&self) -> Option<types::user_shape> {
        let mut shape = types::user_shape {
            name: self.name,
            checks: self.checks.len() as u32,
            ..types::user_shape::default()
        };
        if self.checks.len() > shape.value.len() {
            return None;
        }
        for (at, check) in self.checks.iter().enumerate() {
            (shape.value[at], shape.at[at]) = (check.value, check.at);
        }
        Some(shape)
    }
}

#[cfg(test)]
#[path = "probe_data/tests.rs"]
mod tests;
