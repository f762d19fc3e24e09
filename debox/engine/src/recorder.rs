//! Delivers every record of a session, in texts, as it arrives.
//!
//! The probes send a sleep when it ends and its call after it (`debox/probe/history.h`). Numbers in them are
//! looked up when they are seen for the first time.

mod missing;
mod open;
mod source;
mod stamps;
mod targets;
pub(crate) mod texts;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{bail, Result};

use crate::clock::monotonic_ns;
use crate::collect::Outcome;
use crate::history::{Budget, Call, CpuOwner, CpuWait, Sleep};
use crate::kept::Kept;
use crate::opened;
use crate::options::{Options, Tap};
use crate::record;
use crate::report::Report;
use crate::tables::{self, types, CALL_IA32, CALL_NONE};
pub use missing::Missing;
use source::Source;
use stamps::Stamps;
use texts::Texts;

/// The most sleeps that are kept of one call.
const MAX_SLEEPS: usize = 4096;

/// The most threads with sleeps whose call has not ended.
const MAX_OPEN: usize = 1 << 16;

/// A session whose records are kept.
pub struct Recorder {
    source: Source,
    /// What has arrived of calls that have not ended, by thread.
    open: HashMap<u32, Open>,
    /// Rows for which the program's stamps have not arrived yet.
    stamps: Stamps,
    texts: Texts,
    /// How often the session has begun again with another broker.
    interruptions: u64,
}

#[derive(Default)]
struct Open {
    sleeps: Vec<types::kept_sleep>,
    left_out: u32,
    /// It arrives right before its call.
    cpu: Option<types::kept_cpu>,
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
        let source = Source::of(opened::open(options)?)?;
        let symbols = source.lookups().symbols();
        Ok(Recorder {
            texts: Texts::with_symbols(source.options().detail, symbols),
            stamps: Stamps::since(source.started_ns()),
            source,
            open: HashMap::new(),
            interruptions: 0,
        })
    }

    /// Waits for up to `timeout` and passes the records that have arrived to `keep`. Returns whether there are
    /// more.
    pub fn poll(
        &mut self,
        timeout: Duration,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<bool> {
        self.source.poll(timeout)?;
        let (arrived, is_more) = self.source.take()?;
        if arrived.is_empty() {
            return Ok(is_more);
        }
        let interruptions = self.source.interruptions();
        if interruptions != self.interruptions {
            // A new session numbers the calls from the beginning.
            self.open.clear();
            self.interruptions = interruptions;
        }
        for kept in &arrived {
            match kept {
                Kept::Sleep(sleep) => self.add_sleep(sleep),
                Kept::Call(kept) => {
                    let call = self.call(kept);
                    if self.source.options().user_stamps {
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
        Ok(is_more)
    }

    /// What is missing in the records so far.
    pub fn missing(&self) -> Result<Missing> {
        Ok(Missing {
            stamps_refused: self.stamps.refused,
            ..self.source.missing()?
        })
    }

    /// Stops monitoring, passes the last records and the calls in flight to `keep`, and makes the report.
    pub fn finish(
        mut self,
        outcome: Outcome,
        keep: &mut dyn FnMut(Call) -> Result<()>,
    ) -> Result<(Report, Missing)> {
        let last = self.source.stop()?;
        while self.poll(Duration::ZERO, keep)? {}
        self.stamps.give_all(keep)?;
        let in_flight = self.source.in_flight(&last)?;
        self.keep_in_flight(&in_flight, keep)?;
        let missing = self.missing()?;
        let mut report = self.source.report(outcome, &last)?;
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
        let lookups = self.source.lookups();
        let (caller, stack) = self.texts.user_stack(lookups, call.user_stack);
        let detail = self.source.options().detail;
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
        if !self.source.options().detail.cpu {
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
        let lookups = self.source.lookups();
        let texts = &mut self.texts;
        let place = texts.place(lookups, sleep.into());
        let (resource_kind, resource) = texts.resource(lookups, sleep);
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
            owner_doing: texts.doing(lookups, owner),
            waiters_entry: is_counted.then_some(sleep.waiters_entry),
            waiters_exit: is_counted.then_some(sleep.waiters_exit),
        }
    }
}
