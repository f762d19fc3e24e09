// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a session with its report.

use std::collections::HashMap;

use anyhow::Result;

use super::Session;
use crate::collect::Outcome;
use crate::explain::Explainer;
use crate::report::Report;

impl Session {
    /// Stops monitoring and reports.
    pub fn finish(mut self, outcome: Outcome) -> Result<Report> {
        // Stacks of sleeping tasks are captured before the stop, while the tasks are still
        // enrolled.
        self.events.borrow_mut().titles.look_at_all();
        let stacks = self.stacks_in_flight()?;
        let stopped_ns = self.stop()?;
        self.report(outcome, stopped_ns, &stacks)
    }

    /// Makes the report of what was measured until the stop. `stacks` are those of the tasks that
    /// were asleep before it.
    pub(crate) fn report(
        self,
        outcome: Outcome,
        stopped_ns: u64,
        stacks: &HashMap<u32, Vec<u64>>,
    ) -> Result<Report> {
        let mut snapshot = self.snapshot(stopped_ns, stacks)?;
        snapshot.refuse_impossible();
        let events = self.events.borrow();
        let explainer = Explainer::new(&snapshot.stacks, &events.processes, &events.stacks);
        let mut report = snapshot.report(outcome, &explainer, &events.resources);
        report.processes = events.titles.list();
        if let Some(triggers) = &self.triggers {
            report.triggers = triggers.report(
                &self.skel.maps,
                &explainer,
                self.started_ns,
                self.options.detail,
            )?;
        }
        report.trace = self
            .trace
            .as_ref()
            .map(|trace| trace.report())
            .transpose()?;
        Ok(report)
    }
}
