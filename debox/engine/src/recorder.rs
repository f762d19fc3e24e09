//! Delivers every record of a session, in texts, as it arrives.
//!
//! The probes send a sleep when it ends and its call after it (`debox/probe/history.h`). Numbers in them are
//! looked up when they are seen for the first time.

mod open;
mod stamps;
pub(crate) mod texts;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, Result};
use libbpf_rs::RingBuffer;

use crate::clock::monotonic_ns;
use crate::collect::Outcome;
use crate::history::{Budget, Call, CpuOwner, CpuWait, Sleep};
use crate::options::{Options, Tap};
use crate::record;
use crate::report::{Deadlock, Process, Report};
use crate::session::Session;
use crate::tables::{self, types, CALL_IA32, CALL_NONE};
use crate::trigger::Fired;
use stamps::Stamps;
use texts::Texts;

/// The most events received in one go: a program may be faster than this reader.
const AT_ONCE: usize = 1 << 16;

/// The most sleeps that are kept of one call.
const MAX_SLEEPS: usize = 4096;

/// The most threads with sleeps whose call has not ended.
const MAX_OPEN: usize = 1 << 16;

/// A session whose records are kept.
pub struct Recorder {
    // Declared, and so dropped, before the session, whose maps it reads.
    ring: RingBuffer<'static>,
    session: Session,
    arrived: Rc<RefCell<Vec<Kept>>>,
    /// What has arrived of calls that have not ended, by thread.
    open: HashMap<u32, Open>,
    /// Rows for which the program's stamps have not arrived yet.
    stamps: Stamps,
    texts: Texts,
}

/// A message from the ring buffer.
enum Kept {
    Call(types::kept_call),
    Sleep(types::kept_sleep),
    Stamps(types::kept_stamps),
    Cpu(types::kept_cpu),
}

#[derive(Default)]
struct Open {
    sleeps: Vec<types::kept_sleep>,
    left_out: u32,
    /// It arrives right before its call.
    cpu: Option<types::kept_cpu>,
}

/// What could not be recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missing {
    pub records: u64,
    pub sleeps: u64,
    pub stacks: u64,
    pub threads: u64,
    pub probe_misses: u64,
    /// Stamps of the program around its own calls (`--user-level`) that cannot be true.
    pub stamps_refused: u64,
}

impl Recorder {
    /// Loads and attaches the probes. `options.history_bytes` limits how far they may be ahead of the reader.
    pub fn open(options: Options) -> Result<Recorder> {
        if options.tap == Tap::User {
            bail!(
                "records are kept under the kernel tap only: under the user tap they stay in the \
                 program's own memory"
            );
        }
        let session = Session::open(options)?;
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&arrived);
        let ring = session.receive_records(move |bytes| sink.borrow_mut().extend(read(bytes)))?;
        let stamps = Stamps::since(session.started_ns());
        Ok(Recorder {
            ring,
            texts: Texts::new(session.detail()),
            session,
            arrived,
            open: HashMap::new(),
            stamps,
        })
    }

    /// With `options.user_stamps`: the value that a process needs in its environment so that its shim finds the
    /// session.
    pub fn tap_address(&self) -> Option<&str> {
        self.session.tap_address()
    }

    /// Enrols the threads of a process, now or (`armed`) from their next `execve` on.
    pub fn enrol(&mut self, pid: u32, armed: bool) -> Result<()> {
        self.session.enrol(pid, armed).map(drop)
    }

    /// Enrols running processes and, unless the session is for one process only, their descendants.
    pub fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
        self.session.enrol_running(pids)
    }

    /// Enrols processes that became members of what is recorded. Returns those of which nothing was recorded before.
    pub fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
        self.session.enrol_members(pids)
    }

    /// A descriptor that is readable when events are waiting.
    pub fn events_fd(&self) -> Option<i32> {
        Some(self.session.events_fd())
    }

    /// The processes' names from their command lines.
    pub fn processes(&self) -> Vec<Process> {
        self.session.processes()
    }

    /// Whether anything is monitored.
    pub fn has_threads(&self) -> Result<bool> {
        self.session.has_threads()
    }

    /// Registers `hook` to be called for each call for which a trigger fires, while records are received.
    pub fn on_trigger(&mut self, hook: impl FnMut(&Fired) + 'static) {
        self.session.on_trigger(hook);
    }

    /// How many threads of a process are still monitored.
    pub fn threads_alive(&self, pid: u32) -> Result<usize> {
        self.session.threads_alive(pid)
    }

    /// Waits for up to `timeout` and passes the records that have arrived to `keep`. Returns whether there are
    /// more.
    pub fn poll(
        &mut self,
        timeout: Duration,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<bool> {
        self.session.poll(timeout)?;
        let came = self.ring.consume_raw_n(AT_ONCE);
        if came < 0 {
            bail!(
                "cannot read the records: {}",
                std::io::Error::from_raw_os_error(-came)
            );
        }
        // The events that the records refer to were sent before them.
        self.session.poll(Duration::ZERO)?;
        let arrived = std::mem::take(&mut *self.arrived.borrow_mut());
        for kept in &arrived {
            match kept {
                Kept::Sleep(sleep) => self.add_sleep(sleep),
                Kept::Call(kept) => {
                    let call = self.call(kept);
                    if self.session.options().user_stamps {
                        let is_stamped = kept.flags & tables::THREAD_STAMPED != 0;
                        self.stamps.add(call, is_stamped, keep)?;
                    } else {
                        keep(call)?;
                    }
                }
                Kept::Cpu(cpu) => self.open_of(cpu.tid).into_iter().for_each(|open| {
                    open.cpu = Some(*cpu);
                }),
                Kept::Stamps(stamps) => self.stamps.take(stamps, monotonic_ns(), keep)?,
            }
        }
        let mut again = arrived;
        again.clear();
        *self.arrived.borrow_mut() = again;
        Ok(came as usize >= AT_ONCE)
    }

    /// What is missing in the records so far.
    pub fn missing(&self) -> Result<Missing> {
        let (records, sleeps) = self.session.history_lost();
        let lost = self.session.lost()?;
        let stacks_lost = self.session.events().stacks.borrow().lost;
        Ok(Missing {
            records: records + lost.records,
            sleeps,
            stacks: lost.stacks + stacks_lost,
            threads: lost.threads,
            probe_misses: self.session.probe_misses()?,
            stamps_refused: self.stamps.refused,
        })
    }

    /// The deadlocks found so far.
    pub fn deadlocks(&self) -> &[Deadlock] {
        self.session.deadlocks()
    }

    /// Stops monitoring, passes the last records and the calls in flight to `keep`, and makes the report.
    pub fn finish(
        mut self,
        outcome: Outcome,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<(Report, Missing)> {
        self.session.events_mut().titles.look_at_all();
        let tasks = self.tasks_in_flight()?;
        let stopped_ns = self.session.stop()?;
        while self.poll(Duration::ZERO, keep)? {}
        self.stamps.give_all(keep)?;
        self.keep_in_flight(&tasks, stopped_ns, keep)?;
        let stacks = tasks.kernel_stacks();
        let missing = self.missing()?;
        let mut report = self.session.report(outcome, stopped_ns, &stacks)?;
        tables::add(&mut report.lost.refused, missing.stamps_refused);
        Ok((report, missing))
    }

    /// The open call of a thread; `None` if there are too many.
    fn open_of(&mut self, tid: u32) -> Option<&mut Open> {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&tid) {
            return None;
        }
        Some(self.open.entry(tid).or_default())
    }

    fn add_sleep(&mut self, sleep: &types::kept_sleep) {
        let Some(open) = self.open_of(sleep.tid) else {
            return;
        };
        if open.sleeps.len() < MAX_SLEEPS {
            open.sleeps.push(*sleep);
        } else {
            open.left_out = open.left_out.saturating_add(1);
        }
    }

    fn call(&mut self, call: &types::kept_call) -> Call {
        let is_user = call.call == CALL_NONE;
        let mut sleeps = Vec::new();
        let mut left_out = 0;
        let mut cpu = None;
        if let Some(open) = self.open.get_mut(&call.tid) {
            let is_its_own = |sleep: &types::kept_sleep| {
                sleep.ordinal == call.ordinal && (sleep.call == CALL_NONE) == is_user
            };
            sleeps.extend(open.sleeps.iter().copied().filter(is_its_own));
            left_out = std::mem::take(&mut open.left_out);
            // If an earlier call was lost, this may still be its value.
            cpu = open
                .cpu
                .take()
                .filter(|cpu| cpu.ordinal == call.ordinal && (cpu.call == CALL_NONE) == is_user);
            if is_user {
                open.sleeps.retain(|sleep| !is_its_own(sleep));
            } else {
                open.sleeps.clear();
            }
            if open.sleeps.is_empty() {
                self.open.remove(&call.tid);
            }
        }
        for sleep in &mut sleeps {
            // Only at the call's end is it known which of several descriptors was ready.
            if sleep.resource.kind == tables::RESOURCE_SEVERAL && !is_user {
                let is_known = call.polled.kind != tables::RESOURCE_NONE;
                sleep.resource = if is_known {
                    call.polled
                } else {
                    sleep.resource
                };
            }
        }
        let sleeps = sleeps.iter().map(|sleep| self.sleep(sleep)).collect();
        let waited_ns = tables::total(&[
            call.parts[tables::PART_RUNQUEUE],
            call.parts[tables::PART_PREEMPTED],
        ]);
        let cpu_wait = self.cpu_wait(waited_ns, cpu.map(|cpu| (cpu.throttled_ns, cpu.owner)));
        let session = &self.session;
        let (caller, stack) = self.texts.user_stack(session, call.user_stack);
        let detail = session.detail();
        let part = |part: usize| call.parts[part];
        let number = (call.call & !CALL_IA32) as i32;
        let returns = call.ret;
        Call {
            pid: call.tgid,
            tid: call.tid,
            comm: self.texts.comm(&call.comm),
            name: self.texts.call(call.call),
            number: if is_user { -1 } else { number },
            ia32: !is_user && call.call & CALL_IA32 != 0,
            ordinal: call.ordinal,
            start_ns: call.begin_ns,
            wall_ns: call.wall_ns,
            budget: Budget {
                cpu_ns: part(tables::PART_CPU),
                blocked_ns: part(tables::PART_BLOCKED),
                runqueue_ns: part(tables::PART_RUNQUEUE),
                preempted_ns: part(tables::PART_PREEMPTED),
                irq_ns: detail.irq.then_some(part(tables::PART_IRQ)),
            },
            cpu_wait,
            spin_ns: call.spin_ns,
            in_flight: false,
            ret: returns,
            args: call.args,
            faults_minor: call.faults_minor,
            faults_major: call.faults_major,
            read_bytes: detail.io.then_some(call.read_bytes),
            write_bytes: detail.io.then_some(call.write_bytes),
            restarted: !is_user && (-516..=-512).contains(&returns) && returns != -515,
            partial: call.flags & (tables::THREAD_PARTIAL | tables::THREAD_END_UNSEEN) != 0,
            caller,
            stack,
            user: None,
            sleeps,
            sleeps_left_out: left_out,
        }
    }

    /// `told`: the time that a quota took, and the largest owner of the rest.
    fn cpu_wait(
        &mut self,
        waited_ns: u64,
        told: Option<(u64, types::cpu_owner)>,
    ) -> Option<CpuWait> {
        if !self.session.detail().cpu {
            return None;
        }
        let Some((throttled_ns, owner)) = told else {
            return (waited_ns == 0).then(CpuWait::default);
        };
        let throttled_ns = throttled_ns.min(waited_ns);
        let kind = record::CpuOwner::of(owner.kind);
        let is_process = kind.is_process();
        let owner = kind.as_str().map(|name| CpuOwner {
            kind: self.texts.cpu_owner(name),
            pid: is_process.then_some(owner.tgid),
            comm: is_process.then(|| self.texts.comm(&owner.comm)),
            ns: owner.ns.min(waited_ns - throttled_ns),
        });
        Some(CpuWait {
            throttled_ns,
            owner,
        })
    }

    fn sleep(&mut self, sleep: &types::kept_sleep) -> Sleep {
        let session = &self.session;
        let texts = &mut self.texts;
        let place = texts.place(session, sleep.into());
        let (resource_kind, resource) = texts.resource(session, sleep);
        let owner = &sleep.owner;
        let is_owned = owner.certainty != 0;
        let is_task = sleep.waker_kind == tables::WAKER_TASK;
        let is_counted = sleep.waiters_scope != 0;
        Sleep {
            begin_ns: sleep.begin_ns,
            blocked_ns: sleep.blocked_ns,
            runqueue_ns: sleep.runqueue_ns,
            label: place.label,
            class: place.class,
            site: place.site,
            stack: place.stack,
            resource_kind,
            resource,
            waker_kind: texts.waker_kind(sleep.waker_kind),
            waker_tid: is_task.then_some(sleep.waker_tid),
            waker_comm: is_task.then(|| texts.comm(&sleep.waker_comm)),
            owner_certainty: (sleep.ownable != 0).then(|| texts.certainty(owner.certainty)),
            owner_tid: is_owned.then_some(owner.tid),
            owner_comm: is_owned.then(|| texts.comm(&owner.comm)),
            owner_doing: texts.doing(session, owner),
            waiters_entry: is_counted.then_some(sleep.waiters_entry),
            waiters_exit: is_counted.then_some(sleep.waiters_exit),
        }
    }
}

fn read(bytes: &[u8]) -> Option<Kept> {
    match tables::read_value::<u32>(bytes)? {
        tables::KEPT_CALL => tables::read_value(bytes).map(Kept::Call),
        tables::KEPT_SLEEP => tables::read_value(bytes).map(Kept::Sleep),
        tables::KEPT_CPU => tables::read_value(bytes).map(Kept::Cpu),
        tables::KEPT_STAMPS => tables::read_value(bytes).map(Kept::Stamps),
        _ => None,
    }
}
