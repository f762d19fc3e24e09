// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the processes that targets stand for under monitoring, now and later.

use std::fs;
use std::io;
use std::time::Duration;

use anyhow::{bail, Result};
use debox::live::Live;
use debox::targets::{Joined, Members, Target};
use debox::{Monitor, Options, Recorder};
use kit_console::say;

use crate::options::Targets;
use crate::price::{Bare, Price};
use crate::units;

/// A session that can take in running processes.
pub trait Enrols {
    fn enrol_running(&mut self, pids: &[u32]) -> Result<()>;
    fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>>;
    /// Processes that should be monitored and are not, in sentences.
    fn left_out(&self) -> Vec<String>;
    fn events_fd(&self) -> Option<i32>;
    fn has_threads(&mut self) -> Result<bool>;
}

/// Both kinds of session have the functions.
macro_rules! enrols {
    ($session:ty) => {
        impl Enrols for $session {
            fn enrol_running(&mut self, pids: &[u32]) -> Result<()> {
                <$session>::enrol_running(self, pids)
            }
            fn enrol_members(&mut self, pids: &[u32]) -> Result<Vec<u32>> {
                <$session>::enrol_members(self, pids)
            }
            fn left_out(&self) -> Vec<String> {
                <$session>::left_out(self)
            }
            fn events_fd(&self) -> Option<i32> {
                <$session>::events_fd(self)
            }
            fn has_threads(&mut self) -> Result<bool> {
                <$session>::has_threads(self)
            }
        }
    };
}
enrols!(Monitor);
enrols!(Recorder);
enrols!(Live);

/// The members of a session.
pub struct Following {
    members: Members,
    /// With the whole machine as a target: what calls took before there were probes.
    bare: Option<io::Result<Bare>>,
}

impl Following {
    /// Finds the processes, before probes are loaded. `only`: those that join later are left out.
    pub fn find(targets: &Targets, only: bool) -> Result<Following> {
        Following::of(&targets.list(), only)
    }

    /// The same for these targets.
    pub fn of(targets: &[Target], only: bool) -> Result<Following> {
        let members = Members::find(targets, !only)?;
        let bare = members.is_all().then(Bare::measured);
        Ok(Following { members, bare })
    }

    /// Says what monitoring the whole machine costs, before it begins. The probes are loaded.
    pub fn say_cost(&self, options: &Options) -> Result<()> {
        let max_threads = options.max_threads;
        let Some(bare) = &self.bare else {
            return Ok(());
        };
        let threads = self.members.threads();
        let own_memory = debox::kernel::memory_of_own_tables();
        let is_brokered = own_memory == 0;
        let max_threads = match is_brokered {
            true => max_threads.min(debox::broker::THREADS),
            false => max_threads,
        };
        if is_brokered && threads > u64::from(max_threads) {
            bail!(
                "there are {} threads, and a session of the broker has room for {}: name fewer processes",
                units::count(threads),
                units::count(u64::from(max_threads))
            );
        }
        if threads > u64::from(max_threads) {
            bail!(
                "the machine has {} threads, and there is room for {}: raise --max-threads (1 kB of memory each)",
                units::count(threads),
                units::count(u64::from(max_threads))
            );
        }
        let cost = match bare {
            Ok(bare) => {
                let waits = switches_per_second(Duration::from_millis(200));
                let functions = match &options.trace {
                    Some(_) => " Probes at the kernel's functions come on top, for each that a call enters.",
                    None => "",
                };
                say_price(bare.price(options), waits) + functions
            }
            Err(error) => format!(
                "What it costs each call is unknown: the way to measure it failed ({error})."
            ),
        };
        let memory = match is_brokered {
            true => String::new(),
            false => format!(", in {} of kernel memory", units::bytes(own_memory)),
        };
        say!(
            "debox: --all monitors {} now, and at most {}{memory}. {cost}",
            units::counted(threads, "thread"),
            units::count(u64::from(max_threads)),
        );
        Ok(())
    }

    /// Enrols those that are there.
    pub fn begin(&mut self, session: &mut dyn Enrols) -> Result<()> {
        if !self.members.named().is_empty() {
            session.enrol_running(self.members.named())?;
        }
        self.begin_unnamed(session)
    }

    /// The processes that were named by their ids.
    pub fn named(&self) -> &[u32] {
        self.members.named()
    }

    /// Enrols those that are there and were not named by their ids.
    pub fn begin_unnamed(&mut self, session: &mut dyn Enrols) -> Result<()> {
        let found = self.members.found();
        if !found.is_empty()
            && session.enrol_members(&found)?.is_empty()
            && self.members.named().is_empty()
        {
            match session.left_out().first() {
                Some(why) => bail!("none of the processes found can be monitored. {why}"),
                None => bail!("none of the processes found can be monitored: they have ended"),
            }
        }
        Ok(())
    }

    /// Waits for up to `timeout` for events of the session, and enrols the processes that have come.
    pub fn wait(&mut self, session: &mut dyn Enrols, timeout: Duration) -> Result<()> {
        self.members.wait(session.events_fd(), timeout);
        let joined: Vec<Joined> = self.members.joined();
        for one in joined {
            // Of a process that has ended meanwhile nothing is monitored, and of a member's child everything is.
            if !session.enrol_members(&[one.pid])?.is_empty() {
                self.members.note(one);
            }
        }
        Ok(())
    }

    /// Whether members may come later.
    pub fn follows(&self) -> bool {
        self.members.follows()
    }

    /// Whether there may still be something to monitor.
    pub fn goes_on(&self, session: &mut dyn Enrols) -> Result<bool> {
        Ok(self.members.follows() || session.has_threads()?)
    }

    /// Says what was missed of processes that came later.
    pub fn say_notes(&self) {
        self.members
            .notes()
            .iter()
            .for_each(|note| say!("debox: {note}"));
    }
}

fn say_price(price: Price, switches: Option<u64>) -> String {
    let [call, wait] = [price.call, price.wait].map(|time| {
        // More digits than are known would look exact.
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        units::time(ns.div_ceil(10) * 10)
    });
    let waits = switches.map_or(String::new(), |switches| {
        let percent = price.percent_of_waits(switches);
        format!(
            " At the present {} switches per second, the waits take about {percent:.1} % of one CPU.",
            units::count(switches)
        )
    });
    format!("It adds about {call} to each of their calls and {wait} to each wait, until debox ends.{waits}")
}

/// Switches between tasks, on all CPUs together.
fn switches_per_second(during: Duration) -> Option<u64> {
    let before = switches()?;
    std::thread::sleep(during);
    let more = switches()?.saturating_sub(before);
    Some(more * 1_000 / u64::try_from(during.as_millis()).ok()?.max(1))
}

fn switches() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("ctxt "))?
        .trim()
        .parse()
        .ok()
}
