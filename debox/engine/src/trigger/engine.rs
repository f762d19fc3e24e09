//! The engine's side of triggers: tells the probes which tests hold at places of sleep, and decides late the calls
//! that they could not decide.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::fired::Fired;
use super::listed::{Counts, Listed};
use super::Trigger;
use crate::decision::{decide, tests_that_hold, Decision};
use crate::explain::{in_words, Explained, Explainer};
use crate::options::Detail;
use crate::predicate::{Program, Site};
use crate::report;
use crate::skeleton::{DeboxMaps, OpenDeboxSkel};
use crate::sleep_place::SleepPlace;
use crate::stack_table::frames_of;
use crate::symbols::Symbols;
use crate::tables::{self, types};

/// The most places of sleep whose names are kept.
const SITES_MAX: usize = 65536;

/// The most calls that wait for another process.
const WAITING_MAX: usize = 4096;

/// The triggers of a session.
pub(crate) struct Engine {
    triggers: Vec<Armed>,
    symbols: Symbols,
    /// Label and class.
    names: HashMap<SleepPlace, (String, String)>,
    taker: Taker,
}

/// Who takes the calls for which triggers fire.
enum Taker {
    /// This process.
    Own(Listed),
    /// Another one, which fetches them and sends the signals of those that were decided late.
    Other(VecDeque<types::trigger_fired>),
}

struct Armed {
    trigger: Trigger,
    program: Program,
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
    /// polled (`is_polled`): then the threads decide themselves what the probes cannot. `is_fetched`: the calls
    /// for which triggers fire are for another process.
    pub fn start(
        triggers: &[Trigger],
        maps: &DeboxMaps<'_>,
        is_polled: bool,
        is_fetched: bool,
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
            taker: match is_fetched {
                true => Taker::Other(VecDeque::new()),
                false => Taker::Own(Listed::new(triggers)),
            },
        }))
    }

    /// What was listed for the report; `None` if another process takes it.
    pub fn listed_mut(&mut self) -> Option<&mut Listed> {
        match &mut self.taker {
            Taker::Own(listed) => Some(listed),
            Taker::Other(_) => None,
        }
    }

    /// Calls that another process is to take, the oldest first.
    pub fn waiting_mut(&mut self) -> Option<&mut VecDeque<types::trigger_fired>> {
        match &mut self.taker {
            Taker::Own(_) => None,
            Taker::Other(waiting) => Some(waiting),
        }
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
        let fired = Fired::new(event);
        if fired.is_late && !self.decide(&fired, event, maps) {
            return;
        }
        match &mut self.taker {
            Taker::Own(listed) => listed.take(fired),
            Taker::Other(waiting) if waiting.len() < WAITING_MAX => waiting.push_back(*event),
            Taker::Other(_) => {
                let armed = &mut self.triggers[index];
                armed.unlisted += 1;
                armed.unsent += u64::from(fired.is_late && armed.trigger.signal.is_some());
            }
        }
    }

    /// Decides whether the trigger fires, now that the sites have names.
    fn decide(
        &mut self,
        fired: &Fired,
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
            Decision::Fires => {
                armed.late += 1;
                return true;
            }
            Decision::DoesNotHold => {}
            Decision::Suppressed => armed.late_suppressed += 1,
            Decision::Undecided => armed.undecided += 1,
        }
        false
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

    /// How often each trigger fired so far.
    pub fn counts(&self, maps: &DeboxMaps<'_>) -> Result<Vec<Counts>> {
        let mut all = Vec::new();
        for (index, armed) in self.triggers.iter().enumerate() {
            let counts = maps
                .trigger_counts
                .lookup(&(index as u32).to_ne_bytes(), MapFlags::ANY)
                .context("cannot read how often triggers fired")?;
            let counts: types::trigger_counts = counts
                .as_deref()
                .and_then(tables::read_value)
                .context("a trigger has no counts")?;
            all.push(Counts {
                fired: counts.fired + armed.late,
                late: armed.late,
                suppressed: counts.suppressed + armed.late_suppressed,
                undecided: counts.undecided_lost + armed.undecided,
                unsent: counts.unsent + armed.unsent,
                unlisted: counts.unlisted + armed.unlisted,
            });
        }
        Ok(all)
    }

    /// The part of the report that is about triggers.
    pub fn report(
        &self,
        maps: &DeboxMaps<'_>,
        explainer: &Explainer,
        started_ns: u64,
        detail: Detail,
    ) -> Result<Vec<report::Trigger>> {
        let counts = self.counts(maps)?;
        Ok(match &self.taker {
            Taker::Own(listed) => listed.report(&counts, explainer, started_ns, detail),
            Taker::Other(_) => Vec::new(),
        })
    }
}

fn site_of(name: &Option<(String, String)>) -> Option<Site<'_>> {
    let (label, class) = name.as_ref()?;
    Some(Site { label, class })
}
