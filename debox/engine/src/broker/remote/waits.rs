// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the client's threads wait for, and deadlocks, read with this process's own rights: the broker does not inspect
//! its clients' processes.

use super::link::is_alive;
use super::RemoteSession;
use crate::deadlock::tasks::threads;
use crate::deadlock::Wait;
use crate::explain::{Explainer, UserStack};
use crate::session::{in_words, STACK_NAMES};
use crate::stack_table::StackTable;
use crate::stacks::of_sleeper;
use crate::tree;
use crate::waited::{waits_of, Waits};

impl RemoteSession {
    /// What threads wait for now, read with this process's own rights, as below.
    pub(super) fn waits(&mut self) -> Waits {
        if !self.options.detail.sleeps {
            return Waits::new();
        }
        let processes = self.living();
        let tids = processes.iter().flat_map(|pid| threads(*pid));
        waits_of(tids, &mut self.events.get_mut().resources)
    }

    /// The monitored processes.
    pub(super) fn living(&self) -> Vec<u32> {
        let alive = self.targets.iter().filter(|(_, process)| is_alive(process));
        let alive: Vec<u32> = alive.map(|(pid, _)| *pid).collect();
        tree::processes(&alive, !self.options.one_process)
    }

    /// Looks for deadlocks with this process's own rights: the broker does not inspect its clients' processes.
    pub(super) fn look_for_deadlocks(&mut self) {
        if !self.options.detail.sleeps {
            return;
        }
        let processes = self.living();
        let found_ns = self.started.elapsed().as_nanos() as u64;
        for circle in self.watch.look_at(&processes) {
            let waits = circle.waits.iter().enumerate();
            let stacks = waits.map(|(at, wait)| self.stack_of(wait, at as u64));
            let stacks: Vec<UserStack> = stacks.collect();
            let resources = &mut self.events.get_mut().resources;
            let deadlock = in_words(&circle, found_ns, stacks, resources);
            self.deadlocks.push(deadlock);
        }
    }

    /// The user stack of a waiting thread, in words.
    fn stack_of(&self, wait: &Wait, at: u64) -> UserStack {
        let name = STACK_NAMES - at - ((self.deadlocks.len() as u64) << 32);
        let events = self.events.borrow();
        {
            let mut processes = events.processes.borrow_mut();
            let Some(ask) = of_sleeper(wait.pid, wait.tid, name, &mut processes) else {
                return UserStack::default();
            };
            events.stacks.borrow_mut().take(&ask, &mut processes);
        }
        let nothing = StackTable::new(self.options.detail.callsites);
        Explainer::new(&nothing, &events.processes, &events.stacks).user_stack(name)
    }
}
