// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loop remembers for its stage, and the steps in which stages differ: a name becomes an open file, and it is
//! decided whether bytes of it can be sent.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::pieces::Pieces;
use super::{Delivery, Opening, Residency, Settings, Stage};
use crate::candidates::Candidates;
use crate::contents::Contents;
use crate::files::{File, Kind, Lookup, Root};
use crate::http::request::Request;
use crate::kept::Kept;
use crate::mapping::Mapping;
use crate::residency::{self, Ready, BROUGHT};

/// Names for each open file: the cache of names is larger than that of files, as it was in Flash (2.5.3).
const NAMES: usize = 8;
/// Bytes of names that are remembered; a request for longer ones is a helper's work each time.
const LONGEST: usize = 1024;
/// A file that is not used is closed after one to two of these, in milliseconds.
const GENERATION: u64 = 30_000;

/// The number of a root, and the names that may answer a request.
type Key = (u64, Vec<Vec<u8>>);

struct Open {
    /// Which of the names it has.
    at: usize,
    file: Arc<File>,
    /// When its name was looked up last, in the loop's milliseconds.
    looked_up: u64,
}

/// Of one loop.
pub struct LoopState {
    pub stage: &'static Stage,
    /// `None`: none are kept open.
    open: Option<Kept<Key, Open>>,
    /// Names that a helper has loaded at some time.
    names: Kept<Key, ()>,
    pieces: Pieces,
    pub contents: Contents,
    check_ms: u64,
    /// When files that are not used are closed next, and their bytes forgotten.
    pub looks_at: Option<u64>,
}

impl LoopState {
    /// `loops`: among which open files and memory are divided.
    pub fn new(settings: &Settings, loops: usize) -> LoopState {
        let loops = loops.max(1);
        let most = settings.open_files() / loops;
        let names = match settings.stage.opening {
            Opening::Repeated => most * NAMES,
            Opening::Passed | Opening::Cached => 0,
        };
        LoopState {
            stage: settings.stage,
            open: (most > 1).then(|| Kept::new(most)),
            names: Kept::new(names),
            pieces: Pieces::new(settings.memory / loops as u64),
            contents: Contents::new(settings.kept_bytes() / loops as u64),
            check_ms: settings.check_ms,
            looks_at: None,
        }
    }

    /// What a loop does before it asks a helper. `None`: a helper has to look for the names.
    pub fn find(&mut self, root: &Root, candidates: &mut Candidates, now: u64) -> Option<Lookup> {
        let key = self.key(root, candidates);
        if let Some(open) = self.known(key.as_ref(), now) {
            let (at, file) = (open.at, Arc::clone(&open.file));
            candidates.skip(at);
            return Some(Lookup::Found(file));
        }
        let first = candidates.position();
        let lookup = match self.stage.opening {
            Opening::Passed => None,
            Opening::Cached => open_each(candidates, |name| root.open_cached(name)),
            Opening::Repeated => {
                self.names.get(key.as_ref()?)?;
                open_each(candidates, |name| Some(root.open_waiting(name)))
            }
        }?;
        let at = candidates.position() - first;
        Some(self.keep(key, at, lookup, now))
    }

    /// How much of a file a helper brings into memory when it has opened it for this request.
    pub fn first_bytes(&self, root: &Root, request: &Request, candidates: &Candidates) -> u64 {
        let is_of_today = self.stage.opening == Opening::Cached
            && self.stage.residency == Residency::Told
            && !residency::is_silent(root.device);
        let is_sent = request.wants_whole_file() && !candidates.has_script();
        match is_of_today && is_sent {
            true => BROUGHT,
            false => 0,
        }
    }

    /// A helper has looked for the names. `at`: which of them it was.
    pub fn found(
        &mut self,
        root: &Root,
        candidates: &mut Candidates,
        at: usize,
        lookup: Lookup,
        now: u64,
    ) -> Lookup {
        let key = self.key(root, candidates);
        candidates.skip(at);
        let lookup = match (self.stage.opening, lookup) {
            (Opening::Repeated, Lookup::Found(of_helper)) => {
                drop(of_helper);
                if let Some(key) = &key {
                    self.names.keep(key.clone(), ());
                }
                root.open_waiting(candidates.name())
            }
            (_, lookup) => lookup,
        };
        self.keep(key, at, lookup, now)
    }

    fn key(&self, root: &Root, candidates: &Candidates) -> Option<Key> {
        self.open.as_ref()?;
        let names = candidates.names();
        let length: usize = names.iter().map(Vec::len).sum();
        (length <= LONGEST).then_some((root.number, names))
    }

    fn known(&mut self, key: Option<&Key>, now: u64) -> Option<&Open> {
        let open = self.open.as_mut()?.get(key?)?;
        let is_fresh = now < open.looked_up + self.check_ms;
        (is_fresh && !open.file.is_stale.load(Ordering::Relaxed)).then_some(open)
    }

    /// Keeps an open file. If it is the one that was open already, that one goes on, with its mapping.
    fn keep(&mut self, key: Option<Key>, at: usize, lookup: Lookup, now: u64) -> Lookup {
        let (Some(key), Some(open)) = (key, self.open.as_mut()) else {
            return lookup;
        };
        let file = match lookup {
            Lookup::Found(file) if file.kind == Kind::Regular => file,
            other => {
                open.remove(&key);
                if matches!(other, Lookup::Missing) {
                    self.names.remove(&key);
                }
                return other;
            }
        };
        let file = match open.get(&key) {
            Some(known) if known.file.is_same(&file) => Arc::clone(&known.file),
            _ => file,
        };
        let kept = Open {
            at,
            file: Arc::clone(&file),
            looked_up: now,
        };
        open.keep(key, kept);
        self.looks_at.get_or_insert(now + GENERATION);
        Lookup::Found(file)
    }

    /// A helper has read these bytes of a file whose file system does not tell what is in memory.
    pub fn keep_contents(
        &mut self,
        file: &File,
        begin: u64,
        bytes: &Arc<[u8]>,
        (now, second): (u64, u64),
    ) {
        self.contents.keep(file, begin, bytes, now, second);
        if !self.contents.is_empty() {
            self.looks_at.get_or_insert(now + GENERATION);
        }
    }

    /// Closes files that were not used for a while, and forgets their bytes.
    pub fn drop_unused(&mut self, now: u64) {
        if self.looks_at.is_none_or(|at| at > now) {
            return;
        }
        self.contents.turn();
        let mut is_empty = self.contents.is_empty();
        if let Some(open) = &mut self.open {
            open.turn();
            is_empty &= open.len() == 0;
        }
        self.looks_at = (!is_empty).then_some(now + GENERATION);
    }

    /// There is no descriptor for a connection.
    pub fn close_open_files(&mut self) {
        if let Some(open) = &mut self.open {
            open.clear();
        }
    }

    /// How the bytes `begin..end` of a file can be sent, as [`residency::look`].
    pub fn look(
        &mut self,
        file: &File,
        begin: u64,
        end: u64,
        was_brought: bool,
        copies: bool,
        buffer: &mut [u8],
    ) -> Ready {
        match self.stage.residency {
            // What is encrypted has to be copied, in all stages.
            _ if copies => residency::look(file, begin, end, was_brought, copies, buffer),
            Residency::Told => residency::look(file, begin, end, was_brought, copies, buffer),
            Residency::Reported => residency::read(file, begin, end, buffer),
            Residency::Assumed => self.pieces.look(file, begin, end, was_brought),
            Residency::Mincore => match file.mapping() {
                Some(mapping) => mapped(file, mapping, begin, end),
                None => Ready::Unknown,
            },
        }
    }

    /// The mapping that bytes are sent from.
    pub fn sends_from<'a>(&self, file: &'a File) -> Option<&'a Mapping> {
        match self.stage.delivery {
            Delivery::Writev => file.mapping(),
            Delivery::Sendfile | Delivery::Copied | Delivery::BySize => None,
        }
    }
}

/// Opens the first name that exists. `None`: a name cannot be opened in this way.
fn open_each(
    candidates: &mut Candidates,
    open: impl Fn(&[u8]) -> Option<Lookup>,
) -> Option<Lookup> {
    loop {
        let lookup = open(candidates.name())?;
        let goes_on = matches!(lookup, Lookup::Missing) && candidates.next_is_looked_for();
        if !goes_on {
            return Some(lookup);
        }
        candidates.skip(1);
    }
}

fn mapped(file: &File, mapping: &Mapping, begin: u64, end: u64) -> Ready {
    // A mapping shows zeros between the end of a file that was cut and the end of that page.
    match file.size_now() {
        Ok(size) if size < end => return Ready::Short,
        Ok(_) => {}
        Err(error) => return Ready::Failed(error),
    }
    match mapping.resident(begin, end.min(begin + residency::SENT)) {
        Ok(0) => Ready::Absent,
        Ok(length) => Ready::Resident(length),
        Err(_) => Ready::Unknown,
    }
}
