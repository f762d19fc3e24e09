// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where records come from: this process's own probes, or the broker's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, Result};
use libbpf_rs::RingBuffer;

use super::missing::Missing;
use super::texts::Lookups;
use crate::broker::RemoteSession;
use crate::collect::{Outcome, Snapshot};
use crate::kept::{InFlight, Kept};
use crate::opened::Opened;
use crate::options::{Options, Tap};
use crate::report::Report;
use crate::session::{frames_in_flight, Session};
use crate::stacks::of_task;
use crate::tables::types;
use crate::waited::Waits;

/// The most records received in one go: a program may be faster than this reader.
const AT_ONCE: usize = 1 << 16;
/// The broker hands them out in small portions; this many portions.
const PORTIONS: usize = 32;

/// The most threads whose place in the program is looked up.
const MAX_STACKS: usize = 1024;

pub(super) enum Source {
    Own(Box<Own>),
    Brokered(Box<RemoteSession>),
}

/// A session of this process.
pub(super) struct Own {
    // Declared, and so dropped, before the session, whose maps it reads.
    ring: RingBuffer<'static>,
    session: Session,
    arrived: Rc<RefCell<Vec<Kept>>>,
}

impl Own {
    fn of(session: Session) -> Result<Own> {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&arrived);
        let ring =
            session.receive_records(move |bytes| sink.borrow_mut().extend(Kept::read(bytes)))?;
        Ok(Own {
            ring,
            session,
            arrived,
        })
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    fn take(&mut self) -> Result<(Vec<Kept>, bool)> {
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
        Ok((arrived, came as usize >= AT_ONCE))
    }

    /// The tasks' calls shortly before the stop, while the probes still know the tasks, and the names of their user
    /// stacks.
    fn tasks(&mut self) -> Result<(HashMap<u32, types::in_flight>, HashMap<u32, u64>)> {
        self.session.look_before_stop()?;
        let tasks = self.session.tasks_in_flight()?;
        let events = self.session.events();
        let mut user_stacks = HashMap::new();
        let in_calls = tasks.iter().filter(|(_, task)| task.ordinal > 0);
        for (at, task) in in_calls.take(MAX_STACKS) {
            // The probes' names are hashes; none of these is likely to be one.
            let name = u64::MAX - u64::from(*at);
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = of_task(task, name, &mut processes) else {
                continue;
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
            user_stacks.insert(*at, name);
        }
        drop(events);
        Ok((tasks, user_stacks))
    }

    /// The threads that are in calls after the stop.
    fn in_flight(&self, stopped_ns: u64) -> Result<InFlight> {
        let detail = self.session.detail();
        let mut open = Snapshot::empty(Tap::Kernel, detail, stopped_ns);
        self.session.add_living(&mut open, &HashMap::new())?;
        let mut in_flight = InFlight {
            stopped_ns,
            ..InFlight::default()
        };
        for (at, _) in &open.open_calls {
            let thread = open.threads[*at];
            let wait = self.session.known_wait(&thread)?;
            in_flight.waits.insert(thread.index, wait);
            in_flight.threads.push(thread);
        }
        Ok(in_flight)
    }
}

impl Source {
    pub fn of(opened: Opened) -> Result<Source> {
        Ok(match opened {
            Opened::Own(session) => Source::Own(Box::new(Own::of(*session)?)),
            Opened::Brokered(session) => Source::Brokered(session),
        })
    }

    /// What records refer to by names.
    pub fn lookups(&self) -> &dyn Lookups {
        match self {
            Source::Own(own) => &own.session,
            Source::Brokered(session) => &**session,
        }
    }

    pub fn options(&self) -> &Options {
        match self {
            Source::Own(own) => own.session.options(),
            Source::Brokered(session) => session.options(),
        }
    }

    pub fn started_ns(&self) -> u64 {
        match self {
            Source::Own(own) => own.session.started_ns(),
            Source::Brokered(_) => 0, // it has no stamps, to which this matters
        }
    }

    /// How often the broker ended, or did not answer any more.
    pub fn interruptions(&self) -> u64 {
        match self {
            Source::Own(_) => 0,
            Source::Brokered(session) => session.interruptions(),
        }
    }

    /// Receives events for up to `timeout`.
    pub fn poll(&mut self, timeout: Duration) -> Result<()> {
        match self {
            Source::Own(own) => own.session.poll(timeout),
            Source::Brokered(session) => session.poll(timeout),
        }
    }

    /// The records that have arrived, and whether there are more.
    pub fn take(&mut self) -> Result<(Vec<Kept>, bool)> {
        let session = match self {
            Source::Own(own) => return own.take(),
            Source::Brokered(session) => session,
        };
        let (mut arrived, mut is_more) = session.take_records()?;
        for _ in 1..PORTIONS {
            if !is_more {
                break;
            }
            let (mut portion, more) = session.take_records()?;
            arrived.append(&mut portion);
            is_more = more;
        }
        Ok((arrived, is_more))
    }

    /// What is missing in the records so far; `stamps_refused` is not known here.
    pub fn missing(&self) -> Result<Missing> {
        let session = match self {
            Source::Own(own) => &own.session,
            Source::Brokered(session) => {
                let missing = session.incomplete();
                return Ok(Missing {
                    records: missing.records,
                    sleeps: missing.sleeps,
                    stacks: missing.stacks,
                    threads: missing.threads,
                    probe_misses: missing.probe_misses,
                    interruptions: session.interruptions(),
                    left: missing.left,
                    programs: session.events().titles.left_out(),
                    left_out: session.left_out(),
                    ..Missing::default()
                });
            }
        };
        let (records, sleeps) = session.history_lost();
        let lost = session.lost()?;
        let events = session.events();
        let (stacks_lost, programs) = (events.stacks.borrow().lost, events.titles.left_out());
        drop(events);
        Ok(Missing {
            records: records + lost.records,
            sleeps,
            stacks: lost.stacks + stacks_lost,
            threads: lost.threads,
            probe_misses: session.probe_misses()?,
            programs,
            left_out: session.left_out(),
            ..Missing::default()
        })
    }

    /// What threads waited for in calls for descriptors, shortly before the stop.
    pub fn waited(&self) -> &Waits {
        match self {
            Source::Own(own) => own.session.waited(),
            Source::Brokered(session) => session.waited(),
        }
    }
}

/// A source whose monitoring has stopped.
pub(super) struct Last {
    stopped_ns: u64,
    tasks: HashMap<u32, types::in_flight>,
    user_stacks: HashMap<u32, u64>,
}

impl Source {
    /// Stops monitoring. Records that were seen until then may still be taken.
    pub fn stop(&mut self) -> Result<Last> {
        match self {
            Source::Own(own) => {
                own.session.events_mut().titles.look_at_all();
                let (tasks, user_stacks) = own.tasks()?;
                Ok(Last {
                    stopped_ns: own.session.stop()?,
                    tasks,
                    user_stacks,
                })
            }
            Source::Brokered(session) => {
                session.look_before_stop();
                session.look_at_sleepers();
                session.stop();
                Ok(Last {
                    stopped_ns: 0,
                    tasks: HashMap::new(),
                    user_stacks: HashMap::new(),
                })
            }
        }
    }

    /// The calls that had not returned. Call this after the last record was taken.
    pub fn in_flight(&mut self, last: &Last) -> Result<InFlight> {
        match self {
            Source::Own(own) => Ok(InFlight {
                tasks: last.tasks.clone(),
                user_stacks: last.user_stacks.clone(),
                ..own.in_flight(last.stopped_ns)?
            }),
            Source::Brokered(session) => {
                session.fetch_last();
                Ok(session.in_flight())
            }
        }
    }

    pub fn report(self, outcome: Outcome, last: &Last) -> Result<Report> {
        match self {
            Source::Own(own) => {
                let tasks = last.tasks.iter();
                let stacks = tasks.map(|(at, task)| (*at, frames_in_flight(task)));
                let stacks = stacks.collect();
                own.session.report(outcome, last.stopped_ns, &stacks)
            }
            Source::Brokered(session) => session.report(outcome),
        }
    }
}
