//! The gate: the programs that are attached to the tracepoints, once for all sessions on the machine.
//!
//! Each attached program slows down every process, monitored or not. So sessions do not attach programs
//! themselves: they give them to a gate (debox/probe/gate.bpf.c), which calls those of the sessions that
//! monitor an event's task. The first session makes the gate. The others, in any process, find it among the
//! kernel's programs. It is gone with the last session: nothing is pinned. A session that may not look for
//! it (without `CAP_SYS_ADMIN`) has a gate of its own.
//!
//! What a killed process has left is removed by the next session that joins or leaves, and by the broker.

mod control;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::MapCore;

use control::{control_of, version_of, Control, Token, SESSIONS, SHARED};

use crate::kernel::{self, objects};
use crate::signals::Blocked;
use crate::skeleton_gate::{GateSkelBuilder, OpenGateSkel};

const BETWEEN_TIDYING: Duration = Duration::from_secs(1);

/// A session's place at the gate.
pub(crate) struct Gate {
    control: Control,
    /// The program by which the gate is found.
    _here: OwnedFd,
    /// Closed before the place is cleared.
    tokens: Option<(Token, Token)>,
    session: u32,
    shared: [OwnedFd; SHARED],
    doors: BTreeMap<usize, Door>,
    links: Vec<OwnedFd>,
    leave_tasks: Option<OwnedFd>,
    tidied: Cell<Instant>,
}

/// An event at the gate. Held whether or not the session is attached.
struct Door {
    /// The sessions' programs for the event.
    programs: OwnedFd,
    /// The gate's own program; `None` while it is attached and can be found by its id.
    program: Option<OwnedFd>,
    /// How often the kernel skipped the gate here while the session was attached, up to the last time it was
    /// attached; `missed_before` is the kernel's count at that time.
    missed: u64,
    missed_before: Option<u64>,
}

type Doors = BTreeMap<usize, Door>;

impl Gate {
    /// Takes a place at the machine's gate, or at a new one, for a session with programs of these names.
    pub fn join(programs: &[String]) -> Result<Gate> {
        let events = programs.iter().map(|name| event_of(name));
        let events: BTreeSet<usize> = events.collect::<Result<_>>()?;
        let mut known = BTreeSet::new();
        for (control, here) in find() {
            known.insert(control);
            // A gate that is full, or that a stopped process has locked, cannot be used.
            if let Ok(gate) = Gate::enter(control, here, &events) {
                return Ok(gate);
            }
        }
        let made = Gate::make(&events)?;
        // Another session may have made one at the same time: then all use the older one.
        let own = objects::map_id(made.control.map.as_fd())?;
        for (control, here) in find() {
            if control >= own || known.contains(&control) {
                continue;
            }
            if let Ok(gate) = Gate::enter(control, here, &events) {
                return Ok(gate);
            }
        }
        Ok(made)
    }

    fn enter(control_id: u32, here: OwnedFd, events: &BTreeSet<usize>) -> Result<Gate> {
        let token = Token::new()?;
        let control = Control::map(objects::map_by_id(control_id)?)?;
        control.require_version(version_of(names()?))?;
        let [tasks, contended, waiters, runs] = control.shared_ids().map(objects::map_by_id);
        Gate::take_place(
            token,
            control,
            here,
            [tasks?, contended?, waiters?, runs?],
            events,
            Doors::new(),
        )
    }

    fn make(events: &BTreeSet<usize>) -> Result<Gate> {
        let token = Token::new()?;
        let mut storage = MaybeUninit::uninit();
        let mut open = open(&mut storage)?;
        keep_events(&mut open, events)?;
        open.progs.gate_is_here.set_autoload(true);
        let skel = load(open)?;
        let maps = &skel.maps;
        let here = skel.progs.gate_is_here.as_fd().try_clone_to_owned()?;
        let shared = [
            maps.gate_tasks.as_fd().try_clone_to_owned()?,
            maps.contended_lock.as_fd().try_clone_to_owned()?,
            maps.lock_waiters.as_fd().try_clone_to_owned()?,
            maps.cpu_runs.as_fd().try_clone_to_owned()?,
        ];
        let control = Control::map(maps.debox_gate.as_fd().try_clone_to_owned()?)?;
        let doors = take_doors(skel.object(), events, &control)?;
        let mut ids = [0; SHARED];
        for (id, map) in ids.iter_mut().zip(&shared) {
            *id = objects::map_id(map.as_fd())?;
        }
        control.begin(version_of(names()?), ids);
        Gate::take_place(token, control, here, shared, events, doors)
    }

    /// `doors` are those that the caller has made.
    fn take_place(
        token: Token,
        control: Control,
        here: OwnedFd,
        shared: [OwnedFd; SHARED],
        events: &BTreeSet<usize>,
        doors: Doors,
    ) -> Result<Gate> {
        let mut gate = Gate {
            control,
            _here: here,
            tokens: None,
            session: 0,
            shared,
            doors,
            links: Vec::new(),
            leave_tasks: None,
            tidied: Cell::new(Instant::now()),
        };
        let locked = gate.control.lock(&token)?;
        gate.clear_left();
        let free = (0..SESSIONS).find(|at| gate.control.token(*at).load(Ordering::Relaxed) == 0);
        let free = free.context("the gate has reached its limit of sessions")?;
        let found = match gate.doors.is_empty() {
            true => gate.find_doors(events)?,
            false => Doors::new(),
        };
        gate.doors.extend(found);
        let last = Token::above(gate.doors.values().map(|door| door.programs.as_fd()))?;
        gate.control
            .last_token(free)
            .store(last.id, Ordering::Relaxed);
        gate.control.token(free).store(token.id, Ordering::Release);
        for event in gate.doors.keys() {
            gate.control
                .holders(*event)
                .fetch_or(1 << free, Ordering::Relaxed);
        }
        drop(locked);
        gate.session = free;
        gate.tokens = Some((token, last));
        Ok(gate)
    }

    /// The session's bit in sets of sessions.
    pub fn bit(&self) -> u32 {
        1 << self.session
    }

    /// The maps `gate_tasks`, `contended_lock`, `lock_waiters` and `cpu_runs`.
    pub fn shared_maps(&self) -> [BorrowedFd<'_>; SHARED] {
        self.shared.each_ref().map(AsFd::as_fd)
    }

    /// The program that takes this session's number off all tasks; run when the session leaves.
    pub fn set_leave_tasks(&mut self, program: BorrowedFd) -> Result<()> {
        self.leave_tasks = Some(program.try_clone_to_owned()?);
        Ok(())
    }

    /// Makes the gate record who has the CPUs, until the session is detached.
    pub fn account_for_cpus(&self) {
        self.control
            .accounting()
            .fetch_or(self.bit(), Ordering::SeqCst);
    }

    /// Makes the gate call these programs, each for the event that it is named after. They are attached in
    /// order.
    pub fn attach(&mut self, programs: &[(String, BorrowedFd)]) -> Result<()> {
        let (token, _) = self.tokens.as_ref().context("the session has left")?;
        let locked = self.control.lock(token)?;
        for (name, program) in programs {
            let event = event_of(name)?;
            let door = self
                .doors
                .get_mut(&event)
                .context("no door for the event")?;
            set_program(door.programs.as_fd(), self.session, *program)
                .with_context(|| format!("cannot attach the probe {name}"))?;
            let program = door.program(&self.control, event)?;
            let missed = kernel::recursion_misses(program.as_raw_fd())?;
            door.missed_before = Some(missed);
            let wanted = self.control.wanted(event);
            wanted.fetch_or(1 << self.session, Ordering::SeqCst);
            let link = link(&self.control, event, program.as_fd())
                .with_context(|| format!("cannot attach the gate for the probe {name}"))?;
            self.links.push(link);
            let id = self.control.program_id(event).load(Ordering::Relaxed);
            if objects::program_by_id(id).is_ok() {
                door.program = None; // the link keeps it alive
            }
        }
        drop(locked);
        Ok(())
    }

    /// The doors of these events; loads the gate's programs that are missing. The caller holds the lock.
    fn find_doors(&self, events: &BTreeSet<usize>) -> Result<Doors> {
        let mut doors = Doors::new();
        let mut missing = BTreeSet::new();
        for event in events {
            let program = self.control.program_id(*event).load(Ordering::Relaxed);
            match (self.open_programs(*event), objects::program_by_id(program)) {
                (Some(programs), Ok(program)) => {
                    doors.insert(*event, Door::new(programs, program));
                }
                _ => {
                    missing.insert(*event);
                }
            }
        }
        if !missing.is_empty() {
            doors.append(&mut self.make_doors(&missing)?);
        }
        Ok(doors)
    }

    /// The map of the sessions' programs for an event, if an existing session holds it.
    ///
    /// When the last descriptor of such a map is closed, the kernel empties it some time later, even if it
    /// has been opened by its id since. If it is closed again before that, the kernel loses count and keeps
    /// the map for ever (`prog_array_map_clear`, Linux 4.2 to 6.18).
    fn open_programs(&self, event: usize) -> Option<OwnedFd> {
        const UNTIL_EMPTIED: Duration = Duration::from_millis(50);
        if !self.is_held(event) {
            return None;
        }
        let id = self.control.programs_id(event).load(Ordering::Relaxed);
        let programs = objects::map_by_id(id).ok()?;
        if self.is_held(event) {
            return Some(programs);
        }
        // The session may have ended in between.
        std::thread::sleep(UNTIL_EMPTIED);
        None
    }

    fn is_held(&self, event: usize) -> bool {
        let held = self.control.holders(event).load(Ordering::Relaxed);
        (0..SESSIONS).any(|session| {
            let tokens = [
                self.control.token(session),
                self.control.last_token(session),
            ];
            held & (1 << session) != 0
                && tokens.iter().all(|token| {
                    let token = token.load(Ordering::Relaxed);
                    token != 0 && !objects::map_is_gone(token)
                })
        })
    }

    fn make_doors(&self, events: &BTreeSet<usize>) -> Result<Doors> {
        let mut storage = MaybeUninit::uninit();
        let mut open = open(&mut storage)?;
        keep_events(&mut open, events)?;
        let [tasks, contended, waiters, runs] = self.shared_maps();
        open.maps.gate_tasks.reuse_fd(tasks)?;
        open.maps.contended_lock.reuse_fd(contended)?;
        open.maps.lock_waiters.reuse_fd(waiters)?;
        open.maps.cpu_runs.reuse_fd(runs)?;
        open.maps.debox_gate.reuse_fd(self.control.map.as_fd())?;
        let skel = load(open)?;
        take_doors(skel.object(), events, &self.control)
    }

    /// Stops the calls of the session's programs. One that is running on another CPU runs to its end.
    pub fn detach(&mut self) {
        self.control
            .accounting()
            .fetch_and(!self.bit(), Ordering::SeqCst);
        // All at once: an event without the one that follows it would be misinterpreted.
        for event in self.doors.keys() {
            close_door(&self.control, *event, self.session);
        }
        for (event, door) in &mut self.doors {
            clear_program(door.programs.as_fd(), self.session);
            door.missed = door.missed(&self.control, *event).unwrap_or(door.missed);
            door.missed_before = None;
            door.program = door.program(&self.control, *event).ok();
        }
        self.links.clear();
    }

    pub fn is_attached(&self) -> bool {
        !self.links.is_empty()
    }

    /// How often the kernel has skipped the gate at an event while the session was attached, because it
    /// was running on that CPU already. `None` if the session has no program for it.
    pub fn missed(&self, program: &str) -> Result<Option<u64>> {
        let event = event_of(program)?;
        let door = self.doors.get(&event);
        door.map(|door| door.missed(&self.control, event))
            .transpose()
    }

    /// Removes what sessions of processes that are gone have left. The caller holds the lock.
    fn clear_left(&self) {
        for session in 0..SESSIONS {
            let token = self.control.token(session).load(Ordering::Relaxed);
            if token != 0 && objects::map_is_gone(token) {
                self.clear(session);
            }
        }
    }

    fn clear(&self, session: u32) {
        self.control
            .accounting()
            .fetch_and(!(1 << session), Ordering::SeqCst);
        for event in 0..names().map_or(0, <[String]>::len) {
            close_door(&self.control, event, session);
            let held = self.control.holders(event);
            if held.fetch_and(!(1 << session), Ordering::Relaxed) & (1 << session) == 0 {
                continue;
            }
            // Maps that no session holds are emptied by the kernel.
            if let Some(door) = self.doors.get(&event) {
                clear_program(door.programs.as_fd(), session);
            } else if let Some(programs) = self.open_programs(event) {
                clear_program(programs.as_fd(), session);
            }
        }
        self.control.token(session).store(0, Ordering::Release);
    }

    /// For a long-lived session: removes what others have left, once a second.
    pub fn tidy(&self) {
        let Some((token, _)) = &self.tokens else {
            return;
        };
        if self.tidied.get().elapsed() < BETWEEN_TIDYING {
            return;
        }
        self.tidied.set(Instant::now());
        let is_left = |session: u32| {
            let token = self.control.token(session).load(Ordering::Relaxed);
            token != 0 && objects::map_is_gone(token)
        };
        if (0..SESSIONS).any(is_left) {
            if let Ok(_locked) = self.control.lock(token) {
                self.clear_left();
            }
        }
    }
}

impl Drop for Gate {
    /// A fork of the process may still hold the session: then it stays until the fork has ended, too.
    fn drop(&mut self) {
        let Some(tokens) = self.tokens.take() else {
            return;
        };
        let id = tokens.0.id;
        drop(tokens);
        // Without the privilege to check, the gate belongs to this session alone and ends with its
        // descriptors.
        if !objects::map_is_gone(id) {
            return;
        }
        self.detach();
        let Ok(token) = Token::new() else { return };
        let Ok(_locked) = self.control.lock(&token) else {
            return;
        };
        let is_used = |at: u32| self.control.token(at).load(Ordering::Relaxed) != 0;
        let has_others = (0..SESSIONS).any(|at| at != self.session && is_used(at));
        if let Some(program) = self.leave_tasks.take().filter(|_| has_others) {
            // Best effort: a later session with this number checks its own table of tasks as well.
            let _ = objects::walk_tasks(program.as_fd(), None);
        }
        self.clear_left();
    }
}

impl Door {
    fn new(programs: OwnedFd, program: OwnedFd) -> Door {
        Door {
            programs,
            program: Some(program),
            missed: 0,
            missed_before: None,
        }
    }

    /// How often the kernel skipped the gate at this event while the session was attached.
    fn missed(&self, control: &Control, event: usize) -> Result<u64> {
        let Some(before) = self.missed_before else {
            return Ok(self.missed);
        };
        let program = self.program(control, event)?;
        let now = kernel::recursion_misses(program.as_raw_fd())?;
        Ok(self.missed + now.saturating_sub(before))
    }

    /// The gate's own program.
    fn program(&self, control: &Control, event: usize) -> Result<OwnedFd> {
        match &self.program {
            Some(program) => Ok(program.try_clone()?),
            None => {
                let id = control.program_id(event).load(Ordering::Relaxed);
                Ok(objects::program_by_id(id)?)
            }
        }
    }
}

/// The doors of events whose programs have just been loaded; enters them into the tables.
fn take_doors(
    object: &libbpf_rs::Object,
    events: &BTreeSet<usize>,
    control: &Control,
) -> Result<Doors> {
    let mut doors = Doors::new();
    for event in events {
        let name = &names()?[*event];
        let (of_program, of_map) = (format!("gate_{name}"), format!("to_{name}"));
        let program = object
            .progs()
            .find(|program| program.name() == of_program.as_str());
        let map = object.maps().find(|map| map.name() == of_map.as_str());
        let program = program.context("no such program")?;
        let map = map.context("no such map")?;
        let door = Door::new(
            map.as_fd().try_clone_to_owned()?,
            program.as_fd().try_clone_to_owned()?,
        );
        let id = objects::map_id(door.programs.as_fd())?;
        control.programs_id(*event).store(id, Ordering::Relaxed);
        let id = program_id(program.as_fd())?;
        control.program_id(*event).store(id, Ordering::Relaxed);
        doors.insert(*event, door);
    }
    Ok(doors)
}

/// The link of a program of the gate, existing or new. The caller holds the lock.
fn link(control: &Control, event: usize, program: BorrowedFd) -> Result<OwnedFd> {
    let known = control.link_id(event);
    if let Ok(link) = objects::link_by_id(known.load(Ordering::Relaxed)) {
        if objects::link_info(link.as_fd())?.prog_id == program_id(program)? {
            return Ok(link);
        }
    }
    // SAFETY: takes a descriptor; the tracepoint is the one that the program was loaded for.
    let link =
        unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    let link = objects::owned(link)?;
    let id = objects::link_info(link.as_fd())?.id;
    known.store(id, Ordering::Release);
    Ok(link)
}

fn close_door(control: &Control, event: usize, session: u32) {
    let wanted = control.wanted(event);
    wanted.fetch_and(!(1 << session), Ordering::SeqCst);
}

/// The gates made by root, the oldest first: their control maps, and the programs by which they are found.
fn find() -> BTreeMap<u32, OwnedFd> {
    let mut found = BTreeMap::new();
    // SAFETY: geteuid has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return found;
    }
    let mut id = 0;
    while let Ok(next) = objects::next_program_id(id) {
        id = next;
        if let Ok(program) = objects::program_by_id(id) {
            if let Some(control) = control_of(program.as_fd()) {
                found.insert(control, program);
            }
        }
    }
    found
}

fn program_id(program: BorrowedFd) -> Result<u32> {
    Ok(objects::program_info::<0>(program)?.0.id)
}

fn set_program(programs: BorrowedFd, session: u32, program: BorrowedFd) -> Result<()> {
    let value = program.as_raw_fd();
    // SAFETY: key and value are of the map's sizes.
    let failed = unsafe {
        libbpf_sys::bpf_map_update_elem(
            programs.as_raw_fd(),
            std::ptr::from_ref(&session).cast(),
            std::ptr::from_ref(&value).cast(),
            u64::from(libbpf_sys::BPF_ANY),
        )
    };
    ensure!(
        failed == 0,
        "the gate does not take it: {}",
        std::io::Error::from_raw_os_error(-failed)
    );
    Ok(())
}

fn clear_program(programs: BorrowedFd, session: u32) {
    // SAFETY: the key is of the map's size. There may be nothing to delete.
    unsafe {
        libbpf_sys::bpf_map_delete_elem(programs.as_raw_fd(), std::ptr::from_ref(&session).cast())
    };
}

fn open(storage: &mut MaybeUninit<libbpf_rs::OpenObject>) -> Result<OpenGateSkel<'_>> {
    let mut open = GateSkelBuilder::default()
        .open(storage)
        .context("cannot open the gate's programs")?;
    let cpus = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    open.maps.cpu_runs.set_max_entries(u32::try_from(cpus)?)?;
    Ok(open)
}

fn load(open: OpenGateSkel<'_>) -> Result<crate::skeleton_gate::GateSkel<'_>> {
    let _blocked = Blocked::all();
    open.load()
        .context("the kernel did not accept the gate; `debox doctor` says what it allows")
}

/// Limits the programs to be loaded to those of these events, each with its map.
fn keep_events(open: &mut OpenGateSkel, events: &BTreeSet<usize>) -> Result<()> {
    let names = names()?;
    let kept: Vec<&str> = events.iter().map(|event| names[*event].as_str()).collect();
    let is_kept = |name: &std::ffi::OsStr, prefix: &str| {
        let name = name.to_str().and_then(|name| name.strip_prefix(prefix));
        name.map(|event| kept.contains(&event))
    };
    for mut program in open.open_object_mut().progs_mut() {
        let wanted = is_kept(program.name(), "gate_");
        program.set_autoload(wanted.unwrap_or(false));
    }
    for mut map in open.open_object_mut().maps_mut() {
        if let Some(wanted) = is_kept(map.name(), "to_") {
            map.set_autocreate(wanted)?;
        }
    }
    Ok(())
}

/// The events' names in the order of their numbers, from the gate's own list.
fn names() -> Result<&'static [String]> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(names) = NAMES.get() {
        return Ok(names);
    }
    let mut storage = MaybeUninit::uninit();
    let open = open(&mut storage)?;
    let rodata = open.maps.rodata_data.as_deref();
    let text: Vec<u8> = rodata
        .context("no .rodata in the gate's programs")?
        .event_names
        .iter()
        .map(|byte| *byte as u8)
        .take_while(|byte| *byte != 0)
        .collect();
    let names = String::from_utf8(text)?;
    Ok(NAMES.get_or_init(|| names.lines().map(str::to_string).collect()))
}

/// A session's program is named after its event: `on_EVENT`.
fn event_of(program: &str) -> Result<usize> {
    number_of(program.strip_prefix("on_").unwrap_or(program))
}

fn number_of(event: &str) -> Result<usize> {
    match names()?.iter().position(|name| name == event) {
        Some(number) => Ok(number),
        None => bail!("the gate knows no event {event}"),
    }
}
