// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server does for a request, in phases, from the calls on its connections.
//!
//! A request begins where the server first reads from a connection, and ends where it reads the next one or closes the
//! connection. Calls of the same thread in between belong to it, until the connection has its answer and waits for the
//! client: the server reads and finds nothing, or gives it back to its event loop. Rules of the user name phases that
//! descriptors do not tell apart.

use std::collections::HashMap;
use std::mem;

use anyhow::Result;
use debox_history::History;
use debox_model::history::{Budget, Call};
use debox_model::predicate::Predicate;
use serde::Serialize;

use phase::Descriptors;
pub use phase::Phase;

mod phase;

pub const SCHEMA: &str = "debox.requests/1";

/// Calls of the first whole request that are kept.
const EXAMPLE_MAX: usize = 400;
/// Connections that are followed at the same time.
const OPEN_MAX: usize = 1 << 20;

/// Calls that match belong to a phase of this name, whatever their descriptors are.
#[derive(Debug, Clone)]
pub struct Rule {
    pub phase: String,
    pub predicate: Predicate,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requests {
    pub schema: &'static str,
    pub connections: u64,
    pub requests: u64,
    /// Of a request, from its first byte to its last call before the connection rests. Requests can overlap.
    pub mean_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// In the order in which requests reach them.
    pub phases: Vec<PhaseSums>,
    /// Of all requests together: time in no phase, in which the thread worked for others, or none worked for this one.
    pub elsewhere_ns: u64,
    /// Calls that belong to no request: the server's start, waiting for work, accepting connections.
    pub outside: Vec<CallSums>,
    /// The first request that is whole: its calls in order.
    pub example: Vec<Example>,
    /// What could not be told, in sentences.
    pub caveats: Vec<String>,
}

/// Sums over all requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseSums {
    pub phase: String,
    /// Whether a rule of the user names it.
    pub is_rule: bool,
    pub calls: Vec<CallSums>,
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub blocked_ns: u64,
    /// Ready to run, without a CPU.
    pub cpu_wait_ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CallSums {
    pub call: String,
    pub count: u64,
    pub wall_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Example {
    /// Since the request began.
    pub at_ns: u64,
    pub phase: String,
    pub call: String,
    pub args: [u64; 3],
    pub ret: i64,
    pub wall_ns: u64,
}

/// Of a request that is being answered.
#[derive(Debug)]
struct Open {
    begin_ns: u64,
    end_ns: u64,
    has_answered: bool,
    /// It waits for the client.
    rests: bool,
    calls: Vec<Example>,
}

/// What a thread is at.
#[derive(Debug, Default)]
struct Thread {
    connection: Option<i64>,
    /// When its last call ended.
    end_ns: u64,
    /// Since then.
    off: Off,
}

/// Time in which a thread that was between two calls did not compute.
#[derive(Debug, Clone, Copy, Default)]
struct Off {
    blocked_ns: u64,
    cpu_wait_ns: u64,
    irq_ns: u64,
}

impl Off {
    fn add(&mut self, budget: &Budget) {
        self.blocked_ns = self.blocked_ns.saturating_add(budget.blocked_ns);
        self.cpu_wait_ns = self.cpu_wait_ns.saturating_add(cpu_wait_ns(budget));
        self.irq_ns = self.irq_ns.saturating_add(budget.irq_ns.unwrap_or(0));
    }
}

fn cpu_wait_ns(budget: &Budget) -> u64 {
    budget.runqueue_ns.saturating_add(budget.preempted_ns)
}

#[derive(Debug, Default)]
struct Sums {
    first: u64,
    is_rule: bool,
    calls: HashMap<String, CallSums>,
    wall_ns: u64,
    cpu_ns: u64,
    blocked_ns: u64,
    cpu_wait_ns: u64,
}

struct Reader<'a> {
    rules: &'a [Rule],
    descriptors: HashMap<u32, Descriptors>,
    threads: HashMap<(u32, u32), Thread>,
    open: HashMap<(u32, i64), Open>,
    phases: HashMap<String, Sums>,
    outside: HashMap<String, CallSums>,
    times: Vec<u64>,
    example: Vec<Example>,
    connections: u64,
    left_out: u64,
    order: u64,
}

/// Reads the whole history once.
pub fn requests(history: &History, rules: &[Rule]) -> Result<Requests> {
    let mut reader = Reader::new(rules);
    for row in history.calls() {
        let (_, call) = row?;
        reader.call(&call);
    }
    Ok(reader.finish())
}

impl<'a> Reader<'a> {
    fn new(rules: &'a [Rule]) -> Reader<'a> {
        Reader {
            rules,
            descriptors: HashMap::new(),
            threads: HashMap::new(),
            open: HashMap::new(),
            phases: HashMap::new(),
            outside: HashMap::new(),
            times: Vec::new(),
            example: Vec::new(),
            connections: 0,
            left_out: 0,
            order: 0,
        }
    }

    fn call(&mut self, call: &Call) {
        if call.in_flight {
            return;
        }
        if call.number < 0 {
            let thread = self.threads.entry((call.pid, call.tid)).or_default();
            return thread.off.add(&call.budget);
        }
        let descriptors = self.descriptors.entry(call.pid).or_default();
        let (phase, connection) = descriptors.classify(call);
        self.connections += u64::from(phase == Phase::Accept && call.ret >= 0);
        let thread = self.threads.entry((call.pid, call.tid)).or_default();
        let gap_ns = call.start_ns.saturating_sub(thread.end_ns);
        let had = thread.connection;
        let off = mem::take(&mut thread.off);
        let end_ns = call.start_ns.saturating_add(call.wall_ns);
        thread.end_ns = end_ns;
        match phase {
            // It turns to other work.
            Phase::Wait | Phase::Accept => thread.connection = None,
            _ => thread.connection = connection.or(thread.connection),
        }
        let Some(own) = thread.connection else {
            return self.add_outside(call);
        };
        let key = (call.pid, own);
        let has_answered = |open: &Open| open.has_answered;
        // What is shut down is still to be closed.
        let is_closed = &*call.name == "close" && connection.is_some();
        // A thread of a pool waits for its next connection.
        let waits = phase == Phase::Threads && call.budget.blocked_ns > 0;
        if waits && self.open.get(&key).is_some_and(has_answered) {
            thread.connection = None;
            return self.add_outside(call);
        }
        let has_data = phase == Phase::Receive && call.ret > 0;
        if has_data && self.open.get(&key).is_none_or(has_answered) {
            self.end(key);
            self.begin(key, call);
        }
        let Some(open) = self.open.get_mut(&key) else {
            return self.add_outside(call);
        };
        let begin_ns = open.begin_ns;
        open.has_answered |= phase == Phase::Send && call.ret > 0;
        // The client may take its time to close the connection, or to ask again.
        let finds_nothing = phase == Phase::Receive && open.has_answered;
        open.rests = (open.rests || finds_nothing) && phase != Phase::Send;
        if open.rests {
            self.add_outside(call);
            return self.close(key, call, is_closed);
        }
        open.rests = open.has_answered && phase == Phase::Connection && &*call.name == "epoll_ctl";
        open.end_ns = open.end_ns.max(end_ns);
        let rule = self.rules.iter().find(|rule| rule.predicate.holds(call));
        let name = rule.map_or(phase.name(), |rule| &*rule.phase).to_string();
        if self.example.is_empty() && open.calls.len() < EXAMPLE_MAX {
            open.calls.push(Example {
                at_ns: call.start_ns.saturating_sub(begin_ns),
                phase: name.clone(),
                call: call.name.to_string(),
                args: call.args,
                ret: call.ret,
                wall_ns: call.wall_ns,
            });
        }
        // The program computes between two calls for the same request.
        if had == Some(own) && call.start_ns > begin_ns {
            self.add_program(gap_ns, off);
        }
        self.add(&name, rule.is_some(), call);
        self.close(key, call, is_closed);
    }

    fn close(&mut self, key: (u32, i64), call: &Call, is_closed: bool) {
        if is_closed {
            self.end(key);
            self.threads
                .entry((call.pid, call.tid))
                .or_default()
                .connection = None;
        }
    }

    fn begin(&mut self, key: (u32, i64), call: &Call) {
        if self.open.len() >= OPEN_MAX {
            self.left_out += 1;
            return;
        }
        let open = Open {
            begin_ns: call.start_ns,
            end_ns: call.start_ns,
            has_answered: false,
            rests: false,
            calls: Vec::new(),
        };
        self.open.insert(key, open);
    }

    fn end(&mut self, key: (u32, i64)) {
        let Some(open) = self.open.remove(&key) else {
            return;
        };
        if !open.has_answered {
            self.left_out += 1;
            return;
        }
        self.times.push(open.end_ns.saturating_sub(open.begin_ns));
        if self.example.is_empty() {
            self.example = open.calls;
        }
    }

    fn add(&mut self, name: &str, is_rule: bool, call: &Call) {
        let sums = self.phase(name);
        sums.is_rule |= is_rule;
        sums.wall_ns = sums.wall_ns.saturating_add(call.wall_ns);
        sums.blocked_ns = sums.blocked_ns.saturating_add(call.budget.blocked_ns);
        sums.cpu_ns = sums.cpu_ns.saturating_add(call.budget.cpu_ns);
        sums.cpu_wait_ns = sums.cpu_wait_ns.saturating_add(cpu_wait_ns(&call.budget));
        count(&mut sums.calls, call);
    }

    /// Adds the `ns` between two calls. If the record of a call was lost, `off` is of more than these, and is cut.
    fn add_program(&mut self, ns: u64, off: Off) {
        let blocked_ns = off.blocked_ns.min(ns);
        let cpu_wait_ns = off.cpu_wait_ns.min(ns - blocked_ns);
        let irq_ns = off.irq_ns.min(ns - blocked_ns - cpu_wait_ns);
        let sums = self.phase(Phase::Program.name());
        sums.wall_ns = sums.wall_ns.saturating_add(ns);
        sums.blocked_ns = sums.blocked_ns.saturating_add(blocked_ns);
        sums.cpu_wait_ns = sums.cpu_wait_ns.saturating_add(cpu_wait_ns);
        sums.cpu_ns = sums
            .cpu_ns
            .saturating_add(ns - blocked_ns - cpu_wait_ns - irq_ns);
    }

    fn phase(&mut self, name: &str) -> &mut Sums {
        self.order += 1;
        let first = self.order;
        let new = || Sums {
            first,
            ..Sums::default()
        };
        self.phases.entry(name.to_string()).or_insert_with(new)
    }

    fn add_outside(&mut self, call: &Call) {
        count(&mut self.outside, call);
    }

    fn finish(mut self) -> Requests {
        let keys: Vec<(u32, i64)> = self.open.keys().copied().collect();
        keys.into_iter().for_each(|key| self.end(key));
        let mut phases: Vec<(u64, PhaseSums)> = self
            .phases
            .into_iter()
            .map(|(phase, sums)| {
                let row = PhaseSums {
                    phase,
                    is_rule: sums.is_rule,
                    calls: sorted(sums.calls),
                    wall_ns: sums.wall_ns,
                    cpu_ns: sums.cpu_ns,
                    blocked_ns: sums.blocked_ns,
                    cpu_wait_ns: sums.cpu_wait_ns,
                };
                (sums.first, row)
            })
            .collect();
        phases.sort_by_key(|(first, _)| *first);
        let mut caveats = Vec::new();
        if self.left_out > 0 {
            caveats.push(format!(
                "Not answered while they were recorded: {}; the calls are in the phases",
                kit_units::counted(self.left_out, "request")
            ));
        }
        if self.connections == 0 {
            caveats.push(
                "No connection was accepted in this recording: start it before the server, or before its clients connect"
                    .to_string(),
            );
        }
        let times = self.times.len().max(1) as f64;
        let whole: u64 = self.times.iter().sum();
        let in_phases: u64 = phases.iter().map(|(_, row)| row.wall_ns).sum();
        Requests {
            schema: SCHEMA,
            connections: self.connections,
            requests: self.times.len() as u64,
            mean_ns: self.times.iter().map(|ns| *ns as f64).sum::<f64>() / times,
            min_ns: self.times.iter().copied().min().unwrap_or(0),
            max_ns: self.times.iter().copied().max().unwrap_or(0),
            phases: phases.into_iter().map(|(_, row)| row).collect(),
            elsewhere_ns: whole.saturating_sub(in_phases),
            outside: sorted(self.outside),
            example: self.example,
            caveats,
        }
    }
}

fn count(rows: &mut HashMap<String, CallSums>, call: &Call) {
    let row = rows.entry(call.name.to_string()).or_default();
    row.count += 1;
    row.wall_ns = row.wall_ns.saturating_add(call.wall_ns);
}

fn sorted(calls: HashMap<String, CallSums>) -> Vec<CallSums> {
    let rows = calls
        .into_iter()
        .map(|(call, row)| CallSums { call, ..row });
    let mut rows: Vec<CallSums> = rows.collect();
    rows.sort_by(|a, b| (b.wall_ns, &a.call).cmp(&(a.wall_ns, &b.call)));
    rows
}

#[cfg(test)]
mod tests;
