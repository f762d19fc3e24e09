//! The engine's side of triggers: tells the probes which tests hold at places of sleep, decides
//! late the calls that they could not decide, and keeps the calls that fired for the report.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::fired::Fired;
use super::Trigger;
use crate::decision::{decide, tests_that_hold, Decision};
use crate::explain::{in_words, Explained, Explainer};
use crate::options::Detail;
use crate::predicate::{Number, Program, Site};
use crate::report;
use crate::skeleton::{DeboxMaps, OpenDeboxSkel};
use crate::sleep_place::SleepPlace;
use crate::stack_table::frames_of;
use crate::symbols::Symbols;
use crate::tables::{self, types};

/// The most calls of one trigger that are kept for the report.
const KEPT_MAX: usize = 100;
/// The most places of sleep whose names are kept.
const SITES_MAX: usize = 65536;

type Hook = Box<dyn FnMut(&Fired)>;

/// The triggers of a session.
pub(crate) struct Engine {
    triggers: Vec<Armed>,
    symbols: Symbols,
    /// Label and class.
    names: HashMap<SleepPlace, (String, String)>,
    hook: Option<Hook>,
}

struct Armed {
    trigger: Trigger,
    program: Program,
    kept: Vec<Fired>,
    late: u64,
    /// Suppressed by the limit after they were decided late.
    late_suppressed: u64,
    unsent: u64,
    undecided: u64,
    unlisted: u64,
    /// Counts the late firings of a second.
    window: AtomicU64,
}

/// Configures the probes before they are loaded: options and sizes of tables.
pub(crate) fn configure(
    open: &mut OpenDeboxSkel,
    triggers: &[Trigger],
    max_threads: u32,
) -> Result<()> {
    if triggers.is_empty() {
        return Ok(());
    }
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("no .rodata in the probes")?;
    let mut asks = false;
    for trigger in triggers {
        asks |= !trigger.predicate.compile()?.sites.is_empty();
    }
    rodata.want_triggers = true;
    rodata.trigger_count = triggers.len() as u32;
    rodata.trigger_sites = asks;
    open.maps.triggers.set_max_entries(triggers.len() as u32)?;
    open.maps
        .trigger_counts
        .set_max_entries(triggers.len() as u32)?;
    open.maps.call_sleeps.set_max_entries(max_threads)?;
    if asks {
        open.maps.site_answers.set_max_entries(16384)?;
    }
    Ok(())
}

impl Engine {
    /// Writes the programs to the probes' map. `None` without triggers, and if the session is not
    /// polled (`is_polled`): then the threads decide themselves what the probes cannot.
    pub fn start(
        triggers: &[Trigger],
        maps: &DeboxMaps<'_>,
        is_polled: bool,
    ) -> Result<Option<Engine>> {
        let mut armed = Vec::new();
        for (index, trigger) in triggers.iter().enumerate() {
            let program = trigger.predicate.compile()?;
            let mut bytes = tables::bytes_of(&program.code).to_vec();
            let signal = trigger.signal.unwrap_or(0) as u32;
            bytes.extend(signal.to_ne_bytes());
            bytes.extend(trigger.limit.unwrap_or(0).to_ne_bytes());
            maps.triggers
                .update(&(index as u32).to_ne_bytes(), &bytes, MapFlags::ANY)
                .context("cannot set a trigger")?;
            armed.push(Armed {
                trigger: trigger.clone(),
                program,
                kept: Vec::new(),
                late: 0,
                late_suppressed: 0,
                unsent: 0,
                undecided: 0,
                unlisted: 0,
                window: AtomicU64::new(0),
            });
        }
        if armed.is_empty() || !is_polled {
            return Ok(None);
        }
        let symbols = Symbols::default();
        if armed.iter().any(|armed| !armed.program.sites.is_empty()) {
            // With any address, to read the kernel's symbols now: that takes a while, during which
            // calls would be decided late.
            symbols.kernel(u64::MAX << 31);
        }
        Ok(Some(Engine {
            triggers: armed,
            symbols,
            names: HashMap::new(),
            hook: None,
        }))
    }

    /// Sets the function to call for each call for which a trigger fires.
    pub fn set_hook(&mut self, hook: Hook) {
        self.hook = Some(hook);
    }

    /// Answers a question of the probes, so that they decide such calls themselves from then on.
    pub fn answer(&mut self, asked: &types::site_asked, maps: &DeboxMaps<'_>) {
        let place = SleepPlace::from(asked);
        let Some((label, class)) = self.name(place, maps) else {
            return;
        };
        let site = Site {
            label: &label,
            class: &class,
        };
        let mut answer = types::site_answer {
            holds: 0,
            is_known: 1,
        };
        for (index, armed) in self.triggers.iter().enumerate() {
            answer.holds |= tests_that_hold(index, &armed.program.sites, site);
        }
        let key = types::sleep_key::from(place);
        // Best effort: without it, calls that sleep there are decided late.
        let _ = maps.site_answers.update(
            tables::bytes_of(&key),
            tables::bytes_of(&answer),
            MapFlags::ANY,
        );
    }

    /// Receives a call for which a trigger fired, or may have to fire.
    pub fn take(&mut self, event: &types::trigger_fired, maps: &DeboxMaps<'_>) {
        let index = event.trigger as usize;
        if index >= self.triggers.len() {
            return;
        }
        let mut fired = Fired::new(event);
        if event.undecided != 0 && !self.decide(&mut fired, event, maps) {
            return;
        }
        if let Some(hook) = &mut self.hook {
            hook(&fired);
        }
        let armed = &mut self.triggers[index];
        if armed.kept.len() < KEPT_MAX {
            armed.kept.push(fired);
        } else {
            armed.unlisted += 1;
        }
    }

    /// Decides whether the predicate holds, now that the sites have names, and takes the actions.
    fn decide(
        &mut self,
        fired: &mut Fired,
        event: &types::trigger_fired,
        maps: &DeboxMaps<'_>,
    ) -> bool {
        let used = (event.sites_used as usize).min(event.sites.len());
        let mut names: Vec<_> = event.sites[..used]
            .iter()
            .map(|site| {
                let place = SleepPlace {
                    stack: site.stack,
                    call: event.call,
                    lock_flags: site.lock_flags,
                };
                self.name(place, maps)
            })
            .collect();
        if event.is_incomplete != 0 {
            names.push(None);
        }
        let sites: Vec<Option<Site<'_>>> = names.iter().map(site_of).collect();
        let armed = &mut self.triggers[fired.trigger];
        let Trigger {
            predicate, limit, ..
        } = &armed.trigger;
        let call = fired.as_ended(&sites);
        match decide(predicate, *limit, Some(&armed.window), &call, fired.at_ns) {
            Decision::Fires => armed.late += 1,
            Decision::DoesNotHold => return false,
            Decision::Suppressed => {
                armed.late_suppressed += 1;
                return false;
            }
            Decision::Undecided => {
                armed.undecided += 1;
                return false;
            }
        }
        if let Some(signal) = armed.trigger.signal {
            if let Err(error) = send(fired.pid, fired.tid, signal) {
                armed.unsent += 1;
                fired.signal_failed = Some(error);
            }
        }
        true
    }

    /// Label and class of a place of sleep.
    fn name(&mut self, place: SleepPlace, maps: &DeboxMaps<'_>) -> Option<(String, String)> {
        if let Some(name) = self.names.get(&place) {
            return Some(name.clone());
        }
        let bytes = maps
            .kernel_stacks
            .lookup(&place.stack.to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        let stack: types::kernel_stack = tables::read_value(&bytes)?;
        let frames = frames_of(&stack);
        let args = (stack.has_args != 0).then_some(stack.args);
        let Explained { label, class, .. } =
            in_words(&self.symbols, place.call, args, &frames, place.lock_flags);
        if self.names.len() < SITES_MAX {
            self.names.insert(place, (label.clone(), class.clone()));
        }
        Some((label, class))
    }

    /// The part of the report that is about triggers.
    pub fn report(
        &self,
        maps: &DeboxMaps<'_>,
        explainer: &Explainer,
        started_ns: u64,
        detail: Detail,
    ) -> Result<Vec<report::Trigger>> {
        let mut triggers = Vec::new();
        for (index, armed) in self.triggers.iter().enumerate() {
            let counts = maps
                .trigger_counts
                .lookup(&(index as u32).to_ne_bytes(), MapFlags::ANY)
                .context("cannot read how often triggers fired")?;
            let counts: types::trigger_counts = counts
                .as_deref()
                .and_then(tables::read_value)
                .context("a trigger has no counts")?;
            let calls = armed.kept.iter();
            let calls = calls.map(|fired| call_of(fired, explainer, started_ns, detail));
            triggers.push(report::Trigger {
                predicate: armed.trigger.predicate.to_string(),
                signal: armed.trigger.signal_name(),
                limit_per_second: armed.trigger.limit.map(u64::from),
                fired: counts.fired + armed.late,
                late: armed.late,
                suppressed: counts.suppressed + armed.late_suppressed,
                undecided: counts.undecided_lost + armed.undecided,
                signals_failed: counts.unsent + armed.unsent,
                unlisted: counts.unlisted + armed.unlisted,
                calls: calls.collect(),
            });
        }
        Ok(triggers)
    }
}

fn site_of(name: &Option<(String, String)>) -> Option<Site<'_>> {
    let (label, class) = name.as_ref()?;
    Some(Site { label, class })
}

fn call_of(
    fired: &Fired,
    explainer: &Explainer,
    started_ns: u64,
    detail: Detail,
) -> report::TriggerCall {
    let value = |field: Number| fired.value(field);
    let slept = value(Number::Sleeps) > 0;
    let sleep = slept.then(|| {
        explainer.sleep(SleepPlace {
            stack: fired.kernel_stack,
            call: fired.call,
            lock_flags: fired.lock_flags,
        })
    });
    let user = explainer.user_stack(fired.user_stack);
    let (label, class, frames) = match sleep {
        Some(sleep) => (Some(sleep.label), Some(sleep.class), sleep.frames),
        None => (None, None, Vec::new()),
    };
    report::TriggerCall {
        at_ns: fired.at_ns.saturating_sub(started_ns),
        pid: fired.pid,
        tid: fired.tid,
        comm: fired.comm.clone(),
        syscall: crate::calls::name(fired.call),
        ret: fired.ret(),
        args: [Number::Arg0, Number::Arg1, Number::Arg2]
            .map(value)
            .to_vec(),
        wall_ns: value(Number::Wall),
        cpu_ns: value(Number::Cpu),
        blocked_ns: value(Number::Blocked),
        runqueue_ns: value(Number::Runqueue),
        preempted_ns: value(Number::Preempted),
        throttled_ns: detail.cpu.then_some(value(Number::Throttled)),
        cpu_owner: fired.cpu_owner.clone(),
        irq_ns: detail.irq.then_some(value(Number::Irq)),
        spin_ns: detail.sleeps.then_some(value(Number::Spin)),
        sleeps: value(Number::Sleeps),
        longest_ns: value(Number::Longest),
        faults_minor: value(Number::FaultsMinor),
        faults_major: Some(value(Number::FaultsMajor)),
        label,
        class,
        kernel_frames: frames,
        caller: user.caller,
        frames: user.frames,
        late: fired.is_late,
        signal_failed: fired.signal_failed.is_some(),
    }
}

/// Sends a signal to this thread, if it still exists.
fn send(pid: u32, tid: u32, signal: i32) -> Result<(), i32> {
    // SAFETY: tgkill takes numbers only.
    match unsafe { libc::syscall(libc::SYS_tgkill, pid as i32, tid as i32, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}
