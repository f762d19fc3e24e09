//! What comes through the ring buffer, kept until it is reported or looked up.

use std::cell::RefCell;

use crate::process::Processes;
use crate::resources::Resources;
use crate::stacks::Stacks;
use crate::tables::{self, add, types};

/// Threads whose end is kept one by one; later ones are added up.
const MAX_ENDED_THREADS: usize = 100_000;

/// What came through the ring buffer.
#[derive(Default)]
pub(crate) struct Events {
    pub ended: Vec<types::thread>,
    /// Ended threads beyond [`MAX_ENDED_THREADS`].
    pub ended_unlisted: Vec<types::thread>,
    pub processes: RefCell<Processes>,
    pub stacks: RefCell<Stacks>,
    /// Call sites seen for the first time, to be looked up.
    pub call_sites: Vec<types::call_site_seen>,
    pub resources: Resources,
    /// Who looks up what is seen, if that is not this process.
    pub forwarded: Option<Forwarded>,
}

/// What another process is to look up: nothing of it is looked at here.
#[derive(Default)]
pub(crate) struct Forwarded {
    pub resources: Vec<types::resource_seen>,
    /// What there was no room for, until it is asked for.
    pub dropped: u64,
}

/// Events that wait for another process, of each kind, at most.
const MAX_FORWARDED: usize = 4096;

impl Events {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let Some(kind) = tables::read_value::<u32>(bytes) else {
            return;
        };
        match kind {
            tables::EVENT_THREAD_ENDED => {
                if let Some(event) = tables::read_value::<types::thread_ended>(bytes) {
                    self.add_ended(&event.thread);
                }
            }
            tables::EVENT_CALL_SITE => {
                if let Some(event) = tables::read_value::<types::call_site_seen>(bytes) {
                    match &mut self.forwarded {
                        Some(held) if self.call_sites.len() >= MAX_FORWARDED => held.dropped += 1,
                        _ => self.call_sites.push(event),
                    }
                }
            }
            tables::EVENT_RESOURCE => {
                if let Some(event) = tables::read_value::<types::resource_seen>(bytes) {
                    match &mut self.forwarded {
                        None => self.resources.learn(&event),
                        Some(held) if held.resources.len() >= MAX_FORWARDED => held.dropped += 1,
                        Some(held) => held.resources.push(event),
                    }
                }
            }
            _ => {}
        }
    }

    /// Keeps the life of a thread, or adds it to the others' if there are too many.
    pub(crate) fn add_ended(&mut self, thread: &types::thread) {
        let most = match self.forwarded {
            Some(_) => MAX_FORWARDED,
            None => MAX_ENDED_THREADS,
        };
        if self.ended.len() < most {
            self.ended.push(*thread);
        } else {
            self.add_unlisted(thread);
        }
    }

    pub(crate) fn add_unlisted(&mut self, thread: &types::thread) {
        add_up(&mut self.ended_unlisted, thread);
    }
}

/// Adds a thread's life to the single entry that stands for all unlisted ones.
fn add_up(unlisted: &mut Vec<types::thread>, thread: &types::thread) {
    let Some(sum) = unlisted.first_mut() else {
        unlisted.push(*thread);
        return;
    };
    for part in 0..tables::PARTS {
        add(&mut sum.between[part], thread.between[part]);
        add(&mut sum.in_calls[part], thread.in_calls[part]);
    }
    add(&mut sum.calls, thread.calls);
    sum.unstamped = sum.unstamped.saturating_add(thread.unstamped);
    add(&mut sum.call_faults_minor, thread.call_faults_minor);
    add(&mut sum.call_faults_major, thread.call_faults_major);
    add(
        &mut sum.end_faults_minor,
        thread
            .end_faults_minor
            .saturating_sub(thread.birth_faults_minor),
    );
    add(
        &mut sum.end_faults_major,
        thread
            .end_faults_major
            .saturating_sub(thread.birth_faults_major),
    );
    sum.between_max_ns = sum.between_max_ns.max(thread.between_max_ns);
}
