//! A process's mappings at the time when one of its stacks is unwound.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use super::located::{Located, Made};
use super::perf_map::PerfMaps;
use super::rule::Rule;
use super::walk::{Code, End, Frame, Program};
use crate::module::Module;
use crate::process::{Mapping, Processes};
use crate::tables::types;

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_IMAGES: usize = 512;
const MAX_RULES: usize = 1 << 16;

/// The code of a process: changes with each `execve`, and grows as libraries are loaded.
#[derive(Clone)]
struct Image {
    generation: u16,
    mappings: Vec<Mapping>,
    /// If the mappings were read from the process itself: how many pages of code it had then.
    read_at: Option<u64>,
    /// Whether the mappings were complete at that time.
    is_whole: bool,
}

/// The processes whose stacks are being unwound.
#[derive(Default)]
pub(super) struct Images {
    images: HashMap<u32, Image>,
    /// By file and offset.
    rules: HashMap<(u32, u64), Option<Rc<Rule>>>,
    perf_maps: RefCell<PerfMaps>,
}

/// A frame's place in a form that can be compared.
pub(super) type Place = (Option<u32>, Rc<str>, u64, bool, Option<Made>);

/// One process while one stack of it is unwound.
pub(super) struct Process<'a> {
    images: &'a mut Images,
    processes: &'a mut Processes,
    tgid: u32,
    code_pages: u64,
    /// The mapping that the probe saw at the call itself; for samples that have none, the program.
    seen: types::mapped_file,
}

impl Images {
    pub fn of<'a>(
        &'a mut self,
        ask: &types::stack_ask,
        processes: &'a mut Processes,
    ) -> Process<'a> {
        self.refresh(ask, processes);
        Process {
            images: self,
            processes,
            tgid: ask.tgid,
            code_pages: ask.code_pages,
            seen: match ask.at_ip.end {
                0 => ask.program,
                _ => ask.at_ip,
            },
        }
    }

    /// Adds code that a process has just mapped, with the path of its file.
    pub fn add_mapping(&mut self, ask: &types::stack_ask, path: &Path, processes: &mut Processes) {
        let mapped = if ask.ip == 0 {
            &ask.program
        } else {
            &ask.at_ip
        };
        processes.open_path([ask.tgid, ask.parent], mapped, path);
        self.refresh(ask, processes);
        let new = processes.seen_mapping(ask.tgid, &ask.at_ip);
        self.image(ask.tgid).put(new);
    }

    /// Makes sure that the image of the process is that of the program that it runs now.
    fn refresh(&mut self, ask: &types::stack_ask, processes: &mut Processes) {
        let is_current = self.images.get(&ask.tgid).is_some_and(|image| {
            image.generation == ask.image
                // Other code may have replaced code that was unmapped.
                && image.read_at.is_none_or(|pages| pages <= ask.code_pages)
        });
        if !is_current {
            if self.images.len() >= MAX_IMAGES {
                self.images.clear();
            }
            let image = self.inherited(ask).unwrap_or_else(|| {
                let mut image = Image {
                    generation: ask.image,
                    mappings: Vec::new(),
                    read_at: None,
                    is_whole: false,
                };
                image.put(processes.seen_program(ask.tgid, &ask.program));
                image
            });
            self.images.insert(ask.tgid, image);
        }
        if ask.name != 0 && !self.image(ask.tgid).agrees_with(&ask.at_ip) {
            let seen = processes.seen_mapping(ask.tgid, &ask.at_ip);
            self.image(ask.tgid).put(seen);
        }
    }

    /// The parent's image, for a process that was forked and has not executed a program of its own
    /// yet.
    fn inherited(&self, ask: &types::stack_ask) -> Option<Image> {
        let parent = self.images.get(&ask.parent)?;
        let is_same = parent.generation == ask.image && parent.agrees_with(&ask.program);
        is_same.then(|| parent.clone())
    }

    pub fn made_function(
        &self,
        tgid: u32,
        address: u64,
        instant: Instant,
    ) -> Option<(Rc<str>, u64)> {
        let mut maps = self.perf_maps.borrow_mut();
        maps.find_as_of(tgid, address, instant)
    }

    fn image(&mut self, tgid: u32) -> &mut Image {
        self.images.get_mut(&tgid).expect("refresh put it there")
    }

    fn rule(
        &mut self,
        module: &Rc<Module>,
        offset: u64,
        processes: &mut Processes,
    ) -> Option<Rc<Rule>> {
        let key = (module.id, offset);
        if let Some(known) = self.rules.get(&key) {
            return known.clone();
        }
        if self.rules.len() >= MAX_RULES {
            self.rules.clear();
        }
        let rule = processes.tables.of(module).rule(offset).map(Rc::new);
        self.rules.insert(key, rule.clone());
        rule
    }
}

impl Image {
    /// Whether the mapping that the probe saw is the one that is known.
    fn agrees_with(&self, seen: &types::mapped_file) -> bool {
        let known = self.find(seen.start);
        seen.end == 0 || known.is_some_and(|mapping| mapping.is_of(seen))
    }

    fn find(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|m| m.covers(address))
    }

    /// Adds a mapping, replacing all that it overlaps.
    fn put(&mut self, new: Option<Mapping>) {
        let Some(new) = new else { return };
        self.mappings
            .retain(|old| old.end <= new.start || old.start >= new.end);
        self.mappings.push(new);
    }
}

impl Process<'_> {
    /// The mapping at an address. The process's mappings are read again if they may have changed.
    fn mapping(&mut self, address: u64) -> Option<Mapping> {
        if let Some(known) = self.images.image(self.tgid).find(address) {
            return Some(known.clone());
        }
        if self.images.image(self.tgid).read_at != Some(self.code_pages) {
            self.read_mappings();
        }
        self.images.image(self.tgid).find(address).cloned()
    }

    fn read_mappings(&mut self) {
        let mappings = self.processes.executable_mappings(self.tgid);
        let image = self.images.image(self.tgid);
        image.read_at = Some(self.code_pages);
        // The process may have ended, or have executed another program.
        let seen = self.seen;
        image.is_whole = mappings
            .iter()
            .any(|mapping| mapping.covers(seen.start) && mapping.is_of(&seen));
        if image.is_whole {
            image.mappings = mappings;
        }
    }

    pub fn place(&mut self, frame: Frame) -> (Place, Located) {
        let mapping = self.mapping(frame.lookup());
        let is_made = mapping.as_ref().is_none_or(Mapping::is_made);
        if let Some((function, at)) = is_made
            .then(|| {
                self.images
                    .perf_maps
                    .borrow_mut()
                    .find(self.tgid, frame.lookup())
            })
            .flatten()
        {
            let offset = at + u64::from(frame.is_return);
            return located(None, function, offset, frame.is_return, Some(Made::Named));
        }
        let made = is_made.then_some(Made::Unnamed { tgid: self.tgid });
        let (module, name, offset) = match mapping {
            Some(mapping) => {
                let offset = if mapping.module.is_some() || mapping.is_of_file() {
                    mapping.file_offset(frame.address)
                } else {
                    frame.address
                };
                (mapping.module, mapping.name, offset)
            }
            None => (None, Rc::from(""), frame.address),
        };
        located(module, name, offset, frame.is_return, made)
    }
}

fn located(
    module: Option<Rc<Module>>,
    mapping: Rc<str>,
    offset: u64,
    is_return: bool,
    made: Option<Made>,
) -> (Place, Located) {
    let id = module.as_ref().map(|module| module.id);
    let place = (id, Rc::clone(&mapping), offset, is_return, made);
    let located = Located {
        module,
        mapping,
        offset,
        is_return,
        made,
    };
    (place, located)
}

/// Where the last byte of the call is in a trampoline of Python, without and with an `endbr64` at its begin. No
/// instruction begins there.
const CALLS_OF_TRAMPOLINES: [u64; 2] = [5, 9];

impl Process<'_> {
    /// Python with `-X perf` makes such a function for each of its own, and names it in its perf map.
    fn is_in_trampoline(&self, address: u64) -> bool {
        let found = self.images.perf_maps.borrow_mut().find(self.tgid, address);
        found.is_some_and(|(name, at)| {
            name.starts_with("py::") && CALLS_OF_TRAMPOLINES.contains(&at)
        })
    }

    /// As long as the process exists, its files can be opened through it.
    fn why_no_file(&self) -> End {
        if Path::new(&format!("/proc/{}", self.tgid)).exists() {
            End::NoFile
        } else {
            End::Gone
        }
    }
}

impl Program for Process<'_> {
    fn code(&mut self, address: u64) -> Code {
        let Some(mapping) = self.mapping(address) else {
            let is_whole = self.images.image(self.tgid).is_whole;
            return if is_whole { Code::None } else { Code::Gone };
        };
        let offset = mapping.file_offset(address);
        let Some(module) = &mapping.module else {
            return match mapping.is_of_file() {
                true => Code::NoFile(self.why_no_file()),
                false if self.is_in_trampoline(address) => Code::PythonTrampoline,
                false => Code::NoRule,
            };
        };
        let rule = self.images.rule(module, offset, self.processes);
        rule.map_or(Code::NoRule, Code::Rule)
    }

    fn follows_call(&mut self, address: u64) -> bool {
        let Some(mapping) = self.mapping(address.wrapping_sub(1)) else {
            return false;
        };
        let Some(module) = &mapping.module else {
            // Code made at run time: its bytes are only in the process.
            return !mapping.is_of_file();
        };
        let mut before = [0u8; MAX_CALL];
        let end = mapping.file_offset(address);
        let Some(start) = end.checked_sub(MAX_CALL as u64) else {
            return false;
        };
        module.file().read_exact_at(&mut before, start).is_ok() && ends_in_call(&before)
    }
}

/// The longest form of a call looked for, in bytes.
const MAX_CALL: usize = 7;

/// Whether the bytes can end in an x86-64 call: direct, or through a register or memory.
fn ends_in_call(before: &[u8; MAX_CALL]) -> bool {
    let at = |back: usize| before[MAX_CALL - back];
    let is_indirect = |back: usize| at(back) == 0xff && (at(back - 1) >> 3) & 7 == 2;
    at(5) == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}
