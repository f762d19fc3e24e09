//! A session: loads and attaches the probes, enrols tasks, and receives events.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, OpenObject, RingBuffer, RingBufferBuilder};

use crate::broker::peer::Peer;
use crate::deadlock::{Wait, Watch};
use crate::gate::Gate;
use crate::kernel;
use crate::options::{check, Options, Role, Tap};
use crate::report::{Deadlock, Process};
use crate::samples::{self, Clocks, Samples};
use crate::signals::Blocked;
use crate::skeleton::{DeboxSkel, DeboxSkelBuilder};
use crate::tables::{self as probe_tables, types};
use crate::targets::LeftOut;
use crate::trace::{Shared, Trace, TraceOptions};
use crate::trigger::{Counts, Engine, Fired};
use crate::usertap::TapServer;
use crate::waited::Waits;

mod configure;
mod deadlocks;
mod enrolment;
mod events;
mod finish;
mod live;
mod programs;
mod snapshot;
mod tables;
mod thread_table;

pub use crate::clock::monotonic_ns;
use configure::{configure, configure_role, join_gate};
pub(crate) use deadlocks::{in_words, owner_of, STACK_NAMES};
pub(crate) use enrolment::Enrolment;
pub(crate) use events::{Events, Forwarded};
use programs::{leave_to_gate, loaded_for_gate, Needs};
pub(crate) use snapshot::frames_in_flight;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use snapshot::tasks_by_index;
pub(crate) use tables::Table;

/// The probes, loaded and attached. Dropping it removes everything from the kernel.
pub struct Session {
    gate: Gate,
    trace: Option<Trace>,
    ring: RingBuffer<'static>,
    events: Rc<RefCell<Events>>,
    skel: DeboxSkel<'static>,
    // The object that `skel` borrows from; declared, and so dropped, after it.
    _object: Box<MaybeUninit<OpenObject>>,
    tap: Option<TapServer>,
    triggers: Option<Engine>,
    options: Options,
    started_ns: u64,
    steal_at_start: Option<u64>,
    clocks: Option<Clocks>,
    /// Why there are no clocks although samples were requested.
    unsampled: Option<String>,
    /// Members that could not be enrolled.
    left_out: LeftOut,
    watch: Watch,
    deadlocks: Vec<Deadlock>,
    /// By index in `threads`: what threads wait for shortly before the stop, if the holder is known.
    held: HashMap<u32, Wait>,
    /// By thread: what threads wait for at that time in calls for descriptors, and in which call.
    waited: Waits,
}

impl Session {
    /// Loads and attaches the probes for `options`. Nothing is monitored until it is enrolled.
    pub fn open(options: Options) -> Result<Session> {
        let mut session = Session::load(options, Role::Own)?;
        session.attach()?;
        leave_to_gate(session.skel.object());
        if let Some(clocks) = &mut session.clocks {
            clocks.attach(&session.skel.progs.on_clock)?;
        }
        if let Some(trace) = session.options.trace.clone() {
            session.start_trace(&trace)?;
        }
        let asked_for = session.options.tap == Tap::User && session.options.report;
        if asked_for || session.options.user_stamps {
            session.tap = Some(session.start_tap()?);
        }
        Ok(session)
    }

    /// Loads the probes without attaching them.
    pub(crate) fn load(mut options: Options, role: Role) -> Result<Session> {
        check::require(&options)?;
        check::require_triggers(&options)?;
        kernel::silence_libbpf();
        let (clocks, unsampled) = open_clocks(&mut options, role);
        let mut object = Box::new(MaybeUninit::uninit());
        // SAFETY: the box is kept, unmoved, in the session for as long as the skeleton lives, and
        // is dropped after it.
        let storage: &'static mut MaybeUninit<OpenObject> =
            unsafe { &mut *std::ptr::from_mut(object.as_mut()) };
        let mut builder = DeboxSkelBuilder::default();
        // All types that the probes use are the kernel's own. Without a path, libbpf would also search all modules
        // for types that this kernel lacks.
        builder
            .object_builder_mut()
            .btf_custom_path(kernel::TYPES)?;
        let mut open = builder.open(storage).context("cannot open the probes")?;
        let facts = kernel::type_facts();
        let needs = Needs {
            options: options.clone(),
            role,
            calls_are_preempted: facts.is_some_and(|facts| facts.calls_are_preempted),
            takes_samples: clocks.is_some(),
        };
        configure(&mut open, &needs)?;
        configure_role(&mut open, &options, role)?;
        if let Some(clocks) = &clocks {
            open.maps.samples.set_max_entries(clocks.ring_bytes())?;
        }
        let mut gate = join_gate(&mut open)?;
        let blocked = Blocked::all();
        let skel = open
            .load()
            .context("the kernel did not accept the probes; `debox doctor` says what it allows")?;
        drop(blocked);
        gate.set_leave_tasks(skel.progs.leave_gate_tasks.as_fd())?;

        let is_fetched = role == Role::Run;
        let triggers = Engine::start(&options.triggers, &skel.maps, options.report, is_fetched)?;
        let events = Rc::new(RefCell::new(Events {
            forwarded: (role == Role::Run).then(Forwarded::default),
            ..Events::default()
        }));
        let sink = Rc::clone(&events);
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.events, move |bytes| {
            sink.borrow_mut().take(bytes);
            0
        })?;
        let sink = Rc::clone(&events);
        let shapes = MapHandle::try_from(&skel.maps.user_shapes)
            .context("cannot share the map of user stacks")?;
        builder.add(&skel.maps.stack_asks, move |bytes| {
            let mut events = sink.borrow_mut();
            match &mut events.forwarded {
                Some(held) => held.add_stack(bytes),
                None => answer_ask(&events, bytes, &shapes),
            }
            0
        })?;
        let sink = Rc::clone(&events);
        builder.add(&skel.maps.samples, move |bytes| {
            sink.borrow().take_sample(bytes);
            0
        })?;
        let ring = builder.build().context("cannot read the probes' events")?;

        Ok(Session {
            gate,
            trace: None,
            ring,
            events,
            skel,
            _object: object,
            tap: None,
            triggers,
            options,
            started_ns: monotonic_ns(),
            steal_at_start: kernel::steal_ns(),
            clocks,
            unsampled,
            left_out: LeftOut::default(),
            watch: Watch::default(),
            deadlocks: Vec::new(),
            held: HashMap::new(),
            waited: Waits::new(),
        })
    }

    /// Loads the probes of the call tree, beside the others.
    pub(crate) fn start_trace(&mut self, options: &TraceOptions) -> Result<()> {
        let maps = &self.skel.maps;
        let shared = Shared {
            task_index: maps.task_index.as_fd(),
            threads: maps.threads.as_fd(),
            slots: maps.slots.as_fd(),
            max_threads: self.options.max_threads,
            want_records: self.options.max_records > 0,
        };
        self.trace = Some(Trace::start(options, &shared)?);
        Ok(())
    }

    fn start_tap(&self) -> Result<TapServer> {
        let maps = &self.skel.maps;
        let tasks = MapHandle::try_from(&maps.task_index).context("cannot share the task map")?;
        let is_monitored = move |peer: &Peer| {
            let process = peer.descriptor().as_raw_fd().to_ne_bytes();
            matches!(tasks.lookup(&process, MapFlags::ANY), Ok(Some(_)))
        };
        TapServer::start(
            self.options.max_records,
            maps.slots.as_fd().as_raw_fd(),
            maps.slot_tids.as_fd().as_raw_fd(),
            self.options.user_stamps,
            is_monitored,
        )
    }

    /// What a process needs in its environment to find this session's user tap.
    pub fn tap_address(&self) -> Option<&str> {
        self.tap.as_ref().map(|tap| tap.address.as_str())
    }

    /// Makes the gate call the probes.
    pub(crate) fn attach(&mut self) -> Result<()> {
        if self.options.asks_for_cpus() {
            self.gate.account_for_cpus();
        }
        self.gate.attach(&loaded_for_gate(self.skel.object()))
    }

    /// Detaches the probes. They stay loaded and can be attached again.
    pub(crate) fn detach(&mut self) {
        self.gate.detach();
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.gate.is_attached()
    }

    /// The number of entries of the table of threads that have been used so far.
    pub(crate) fn threads_given_out(&self) -> u32 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| bss.next_fresh)
    }

    /// Receives events for up to `timeout`, and looks up what they refer to while it still exists.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        let raw = self.ring.poll_raw(timeout);
        if raw < 0 && raw != -libc::EINTR {
            bail!(
                "cannot read the probes' events: {}",
                std::io::Error::from_raw_os_error(-raw)
            );
        }
        // Ends of threads come without a wake-up (they are sent from inside the scheduler).
        self.ring
            .consume()
            .context("cannot read the probes' events")?;
        self.look_up_call_sites();
        self.look_at_titles();
        self.serve_triggers();
        if let Some(tap) = &mut self.tap {
            tap.refresh_clock();
        }
        self.gate.tidy();
        self.watch_for_deadlocks()
    }

    /// A descriptor that is readable when events are waiting.
    pub fn events_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Receives events without looking anything up.
    pub(crate) fn take_in(&mut self) -> Result<()> {
        self.ring
            .consume()
            .context("cannot read the probes' events")
    }

    fn look_at_titles(&mut self) {
        let mut events = self.events.borrow_mut();
        if events.forwarded.is_none() && !self.options.live {
            events.titles.look();
        }
    }

    /// The monitored processes' names from their command lines, with an entry for each program.
    pub fn processes(&self) -> Vec<Process> {
        self.events.borrow().titles.list()
    }

    fn look_up_call_sites(&mut self) {
        let mut events = self.events.borrow_mut();
        let events = &mut *events;
        if events.forwarded.is_some() {
            return;
        }
        for seen in events.call_sites.drain(..) {
            let wrapper = events.processes.borrow_mut().learn(&seen);
            let value = types::wrapper {
                offset: wrapper.offset,
                rule: wrapper.rule,
            };
            self.set_wrapper(seen.tgid, seen.ip, value, MapFlags::ANY);
        }
    }

    /// Registers `hook` to be called for each call for which a trigger fires, while events are received.
    pub fn on_trigger(&mut self, hook: impl FnMut(&Fired) + 'static) {
        let listed = self.triggers.as_mut().and_then(Engine::listed_mut);
        if let Some(listed) = listed {
            listed.set_hook(Box::new(hook));
        }
    }

    /// Answers the probes' questions about places of sleep, and takes the calls for which triggers fired.
    pub(crate) fn serve_triggers(&mut self) {
        let Some(triggers) = &mut self.triggers else {
            return;
        };
        let (asked, fired) = {
            let mut events = self.events.borrow_mut();
            let asked = std::mem::take(&mut events.sites_asked);
            (asked, std::mem::take(&mut events.fired))
        };
        for asked in &asked {
            triggers.answer(asked, &self.skel.maps);
        }
        for fired in &fired {
            triggers.take(fired, &self.skel.maps);
        }
    }

    /// Calls for which triggers fired, for another process.
    pub(crate) fn fired_for_others(&mut self) -> Option<&mut VecDeque<types::trigger_fired>> {
        self.triggers.as_mut()?.waiting_mut()
    }

    /// How often each trigger fired so far.
    pub(crate) fn trigger_counts(&self) -> Result<Vec<Counts>> {
        let counts = self.triggers.as_ref().map(|of| of.counts(&self.skel.maps));
        counts.unwrap_or_else(|| Ok(Vec::new()))
    }

    /// How many threads of a process are still monitored.
    pub fn threads_alive(&self, tgid: u32) -> Result<usize> {
        let mut alive = 0;
        for index in 0..self.threads_given_out() {
            let thread = self.thread(index)?;
            alive += usize::from(thread.is_some_and(|thread| {
                thread.tgid == tgid && thread.state == probe_tables::THREAD_LIVE
            }));
        }
        Ok(alive)
    }

    /// Whether anything is monitored, or will be with its next `execve`.
    pub fn has_threads(&self) -> Result<bool> {
        for index in 0..self.threads_given_out() {
            let thread = self.thread(index)?;
            let states = [probe_tables::THREAD_ARMED, probe_tables::THREAD_LIVE];
            if thread.is_some_and(|thread| states.contains(&thread.state)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn thread(&self, index: u32) -> Result<Option<types::thread>> {
        let threads = &self.skel.maps.threads;
        let bytes = threads.lookup(&index.to_ne_bytes(), MapFlags::ANY)?;
        Ok(bytes.as_deref().and_then(probe_tables::read_value))
    }

    /// With detail `samples`: the samples received so far.
    pub(crate) fn samples(&self) -> Option<Samples> {
        self.clocks.as_ref()?;
        let mut samples = self.events.borrow().samples.borrow().clone();
        if let Some(bss) = self.skel.maps.bss_data.as_deref() {
            probe_tables::add(&mut samples.lost, bss.samples_lost);
            samples.in_interrupts = bss.samples_in_interrupts;
        }
        Some(samples)
    }

    /// Sentences about what this session could not see.
    pub(crate) fn notes(&self) -> Vec<String> {
        let hotplugged = self.clocks.as_ref().and_then(Clocks::unseen);
        let untitled = self.events.borrow().titles.unseen();
        self.unsampled
            .clone()
            .into_iter()
            .chain(hotplugged)
            .chain(untitled)
            .chain(self.left_out.notes())
            .collect()
    }

    /// Stops monitoring; what was measured stays in the tables. Returns the time of the stop.
    pub(crate) fn stop(&mut self) -> Result<u64> {
        if let Some(trace) = &mut self.trace {
            trace.stop()?;
        }
        if let Some(clocks) = &mut self.clocks {
            clocks.stop();
        }
        self.gate.detach();
        let now = monotonic_ns();
        self.ring
            .consume()
            .context("cannot read the probes' last events")?;
        self.look_up_call_sites();
        self.serve_triggers();
        Ok(now)
    }
}

/// The CPUs' clocks, if they are requested and available; otherwise the reason why not.
fn open_clocks(options: &mut Options, role: Role) -> (Option<Clocks>, Option<String>) {
    let detail = &mut options.detail;
    detail.samples &= options.report && role == Role::Own;
    if !detail.samples {
        return (None, None);
    }
    match Clocks::open() {
        Ok(clocks) => (Some(clocks), None),
        Err(error) => {
            detail.samples = false;
            (None, Some(samples::refusal(&error)))
        }
    }
}

/// Unwinds a user stack for the probes, and tells them how to recognise it.
fn answer_ask(events: &Events, bytes: &[u8], shapes: &MapHandle) {
    let answer = {
        let mut processes = events.processes.borrow_mut();
        events.stacks.borrow_mut().take(bytes, &mut processes)
    };
    let Some(answer) = answer else { return };
    // Best effort: without it the stack is sent again, under the same name.
    let _ = shapes.update(
        probe_tables::bytes_of(&answer.key),
        probe_tables::bytes_of(&answer.shape),
        MapFlags::ANY,
    );
}
