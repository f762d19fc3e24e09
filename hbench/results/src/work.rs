// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of an application's work, on the machine where it ran and on another.

use crate::application::{Application, Component};
use crate::mapping::MAPPING;
use crate::relation::{Ratio, Relation};

/// A part of the work.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// `user CPU`, `entering the kernel`, or a primitive.
    pub name: String,
    /// The largest transfer of its class.
    pub size: Option<u64>,
    /// How often: calls, faults, switches. 0 for the CPU time in user mode.
    pub count: u64,
    pub bytes: u64,
    /// Where the application ran.
    pub here_ns: f64,
    pub ratio: Ratio,
    /// The benchmarks that it is scaled by; `None`: nothing, it is kept as it was.
    pub scaled_by: Option<String>,
}

impl Part {
    pub fn there_ns(&self) -> f64 {
        self.here_ns * self.ratio.value
    }
}

pub const USER: &str = "user CPU";
pub const ENTRY: &str = "entering the kernel";
pub const SWITCH: &str = "context switches";
pub const FAULT: &str = "page faults";

/// Kept as it was. It may take as much longer as user mode, so its uncertainty reaches there.
fn kept(user: Ratio) -> Ratio {
    Ratio {
        value: 1.0,
        deviation: user.value.ln().abs().max(0.1),
    }
}

/// All parts. They add up to what the application computed, as far as recording it did not change that.
pub fn parts(application: &Application, relation: &Relation) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut entries = part(ENTRY, Some(&relation.entry_by), relation.entry);
    let switch = relation.benchmark(&MAPPING.switch);
    let switch_ns = relation
        .cost_ns(&MAPPING.switch)
        .filter(|_| switch.is_some());
    let mut switches = part(
        SWITCH,
        Some(&MAPPING.switch),
        switch.unwrap_or(relation.user),
    );
    let mut of_primitives = Vec::new();
    for component in &application.components {
        let calls = component.calls as f64;
        let cpu_ns = component.cpu_ns as f64;
        let (entry_ns, beside_ns) = match application.tap {
            // What a recorded null call has inside is no work of the call.
            Some(tap) => (
                calls * relation.entry_ns,
                (cpu_ns - calls * tap.inside_ns).max(0.0),
            ),
            None => {
                let entry_ns = (calls * relation.entry_ns).min(cpu_ns);
                (entry_ns, cpu_ns - entry_ns)
            }
        };
        entries.here_ns += entry_ns;
        entries.count += component.calls;
        let asleep = component.sleeps as f64 * switch_ns.unwrap_or(0.0);
        let switch_part = asleep.min(beside_ns);
        switches.here_ns += switch_part;
        switches.count += component.sleeps;
        of_primitives.push(of_primitive(component, beside_ns - switch_part, relation));
    }
    let (user, faults) = outside_calls(application, relation);
    parts.push(user);
    parts.push(entries);
    parts.extend(
        [faults, switches]
            .into_iter()
            .filter(|part| part.here_ns > 0.0),
    );
    parts.extend(of_primitives.into_iter().filter(|part| part.here_ns > 0.0));
    parts
}

fn part(name: &str, scaled_by: Option<&str>, ratio: Ratio) -> Part {
    Part {
        name: name.to_string(),
        size: None,
        count: 0,
        bytes: 0,
        here_ns: 0.0,
        ratio,
        scaled_by: scaled_by.map(str::to_string),
    }
}

fn of_primitive(component: &Component, here_ns: f64, relation: &Relation) -> Part {
    let known = MAPPING.primitive(&component.primitive);
    let bytes = component.bytes as f64 / component.calls.max(1) as f64;
    let found = known.and_then(|known| Some((relation.remainder(known, bytes)?, known)));
    let scaled_by = found.map(|(_, known)| known.costs.join(", "));
    Part {
        name: component.primitive.clone(),
        size: component.size,
        count: component.calls,
        bytes: component.bytes,
        here_ns,
        ratio: found.map_or(kept(relation.user), |(ratio, _)| ratio),
        scaled_by,
    }
}

/// Time in user mode is recorded with its page faults, and with a part of what recording takes.
fn outside_calls(application: &Application, relation: &Relation) -> (Part, Part) {
    let recording = &application.recording;
    let tapped = application.tap.map_or(0.0, |tap| tap.between_ns);
    let own_ns = (recording.user_cpu_ns as f64 - recording.calls as f64 * tapped).max(0.0);
    let faults = application.runs.iter().map(|run| run.faults_minor).min();
    let faults = faults
        .unwrap_or(0)
        .saturating_sub(recording.faults_in_calls);
    let ratio = relation.benchmark(&MAPPING.fault);
    let fault_ns = relation.cost_ns(&MAPPING.fault).filter(|_| ratio.is_some());
    let faults_ns = (faults as f64 * fault_ns.unwrap_or(0.0)).min(own_ns);
    let mut user = part(USER, None, relation.user);
    user.here_ns = own_ns - faults_ns;
    user.scaled_by = Some("user mode".to_string());
    let mut of_faults = part(FAULT, Some(&MAPPING.fault), ratio.unwrap_or(relation.user));
    of_faults.here_ns = faults_ns;
    of_faults.count = faults;
    (user, of_faults)
}
