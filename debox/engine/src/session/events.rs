//! Messages from the ring buffer, kept until they are reported or looked up.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::process::Processes;
use crate::resources::Resources;
use crate::samples::Samples;
use crate::stacks::Stacks;
use crate::tables::{self, types};
use crate::titles::Titles;

/// The most ended threads that are kept one by one; later ones are summed.
const MAX_ENDED_THREADS: usize = 100_000;

/// What was received through the ring buffer.
#[derive(Default)]
pub(crate) struct Events {
    pub ended: Vec<types::thread>,
    /// Ended threads beyond [`MAX_ENDED_THREADS`].
    pub ended_unlisted: Vec<types::thread>,
    pub processes: RefCell<Processes>,
    pub stacks: RefCell<Stacks>,
    pub samples: RefCell<Samples>,
    /// Call sites seen for the first time, to be looked up.
    pub call_sites: Vec<types::call_site_seen>,
    pub resources: Resources,
    pub titles: Titles,
    /// Places of sleep whose labels triggers need, and calls for which they fired.
    pub sites_asked: Vec<types::site_asked>,
    pub fired: Vec<types::trigger_fired>,
    /// Events that another process looks up; `None` if this process does so itself.
    pub forwarded: Option<Forwarded>,
}

/// Events that another process looks up. They are not examined here.
#[derive(Default)]
pub(crate) struct Forwarded {
    pub resources: Vec<types::resource_seen>,
    pub titles: Vec<types::title_seen>,
    /// User stacks to be unwound, and code that was mapped.
    pub stacks: VecDeque<Box<[u8]>>,
    /// How many events were dropped because there was no room to keep them until they are
    /// requested.
    pub dropped: u64,
}

/// The most events of each kind that wait for another process.
const MAX_FORWARDED: usize = 4096;
/// The most user stacks that wait for another process: each has up to 17 KB.
const MAX_FORWARDED_STACKS: usize = 1024;

impl Forwarded {
    pub fn add_stack(&mut self, bytes: &[u8]) {
        if self.stacks.len() < MAX_FORWARDED_STACKS {
            self.stacks.push_back(bytes.into());
        } else {
            // Mappings can also be looked up without this message.
            let ask = tables::read_value::<types::stack_ask>(bytes);
            self.dropped += u64::from(ask.is_some_and(|ask| ask.name != 0));
        }
    }
}

impl Events {
    pub(crate) fn take_sample(&self, bytes: &[u8]) {
        let mut processes = self.processes.borrow_mut();
        let mut stacks = self.stacks.borrow_mut();
        self.samples
            .borrow_mut()
            .take(bytes, &mut stacks, &mut processes);
    }

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
            // Paths are not sent to the broker's clients, which see only the directory's last
            // component.
            tables::EVENT_DIRECTORY if self.forwarded.is_none() => {
                if let Some(event) = tables::read_value::<types::directory_seen>(bytes) {
                    self.resources.learn_directory(&event);
                }
            }
            tables::EVENT_TITLE => {
                if let Some(event) = tables::read_value::<types::title_seen>(bytes) {
                    match &mut self.forwarded {
                        None => self.titles.take(&event),
                        // The title of a living process can also be looked up without this message.
                        Some(held) if held.titles.len() >= MAX_FORWARDED => {}
                        Some(held) => held.titles.push(event),
                    }
                }
            }
            tables::EVENT_SITE => self
                .sites_asked
                .extend(tables::read_value::<types::site_asked>(bytes)),
            tables::EVENT_TRIGGER => self
                .fired
                .extend(tables::read_value::<types::trigger_fired>(bytes)),
            _ => {}
        }
    }

    /// Keeps the life of a thread, or adds it to the sums if there are too many.
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
        match self.ended_unlisted.first_mut() {
            Some(sum) => tables::add_life(sum, thread),
            None => self.ended_unlisted.push(*thread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_fetches_is_limited_and_counted() {
        let site = types::call_site_seen {
            kind: tables::EVENT_CALL_SITE,
            ..types::call_site_seen::default()
        };
        let resource = types::resource_seen {
            kind: tables::EVENT_RESOURCE,
            ..types::resource_seen::default()
        };
        let mut events = Events {
            forwarded: Some(Forwarded::default()),
            ..Events::default()
        };
        let mut stack = types::stack_ask::default();
        for name in [1, 0] {
            stack.name = name;
            for _ in 0..MAX_FORWARDED_STACKS / 2 + 1 {
                let held = events.forwarded.as_mut().unwrap();
                held.add_stack(tables::bytes_of(&stack));
            }
        }
        stack.name = 1;
        let held = events.forwarded.as_mut().unwrap();
        held.add_stack(tables::bytes_of(&stack));
        assert_eq!((held.stacks.len(), held.dropped), (MAX_FORWARDED_STACKS, 1));
        for _ in 0..MAX_FORWARDED + 3 {
            events.take(tables::bytes_of(&site));
            events.take(tables::bytes_of(&resource));
            events.add_ended(&types::thread::default());
        }
        let held = events
            .forwarded
            .as_ref()
            .map(|held| (held.resources.len(), held.dropped));
        assert_eq!(held, Some((MAX_FORWARDED, 7)));
        assert_eq!(events.call_sites.len(), MAX_FORWARDED);
        assert_eq!(
            (events.ended.len(), events.ended_unlisted.len()),
            (MAX_FORWARDED, 1)
        );
    }
}
