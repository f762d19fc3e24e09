//! Checks what this machine allows debox to see, what is missing, what each lack costs, and the
//! remedy.
//!
//! Nothing is concluded from the kernel's version: kernels are patched, configured and locked down
//! in their own ways. Whatever can be tried is tried, up to a whole session over this process
//! itself.

mod access;
mod arrivals;
mod broker;
mod calltree;
mod features;
mod finding;
mod machine;
mod names;
mod sampling;
mod taps;
mod unused;

use serde::Serialize;

use crate::kernel;
use features::KernelTypes;
pub use finding::{Finding, Standing};

/// The value of [`Diagnosis::schema`].
pub const SCHEMA: &str = "debox.doctor/1";

/// All findings about this machine, as they are written to JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// `uname -r`.
    pub kernel: String,
    pub findings: Vec<Finding>,
    /// Whether nothing prevents the main task: monitoring a program under the kernel tap.
    pub ok: bool,
}

impl Diagnosis {
    /// Summarises findings.
    pub fn new(findings: Vec<Finding>) -> Diagnosis {
        let ok = findings
            .iter()
            .all(|finding| finding.standing != Standing::Prevents);
        Diagnosis {
            schema: SCHEMA.to_string(),
            kernel: kernel::release(),
            findings,
            ok,
        }
    }
}

/// Runs all checks, those that prevent everything else first. Takes well under a second, in which
/// probes are attached for some milliseconds as in any session; nothing stays in the kernel.
pub fn examine() -> Vec<Finding> {
    kernel::silence_libbpf();
    let types = KernelTypes::read();
    let bpf = access::try_bpf();
    // Before the trials: what they load leaves the kernel only some time after they end.
    let others = machine::other_sessions(&bpf);
    let found = broker::look();
    // A process that may not load probes can use the broker's.
    let is_brokered = found.is_ok() && !kernel::has_bpf_privilege();
    let mut findings = vec![
        access::processor(),
        access::privilege(is_brokered),
        broker::examine(&found),
        access::bpf_call(&bpf),
        access::process_numbers(is_brokered),
        access::lockdown(),
        features::kernel_types(&types),
    ];
    findings.push(features::tables(&bpf));
    findings.extend(features::events(&types));
    findings.push(features::helpers(&types));

    // A session that is bound to fail would only repeat the findings above in worse words.
    let may_try = findings
        .iter()
        .all(|finding| finding.standing != Standing::Prevents);
    let (taps, seen_waker) = taps::examine(match (may_try, is_brokered) {
        (true, false) => Ok(()),
        (true, true) => Err("not tried: the probes are the broker's"),
        (false, _) => Err("not tried: see what prevents it above"),
    });
    findings.extend(taps);

    findings.push(features::waker_context(&types, seen_waker));
    findings.push(features::wait_account(&types));
    findings.push(features::owners());
    findings.push(features::storage_account(&types));
    findings.push(access::programs_of_others());
    findings.extend(names::examine());
    findings.push(machine::clock());
    findings.push(machine::steal());
    findings.push(others);
    findings.push(arrivals::examine());
    findings.push(calltree::examine(&bpf));
    findings.push(sampling::examine());
    findings.push(unused::kprobes());
    findings.push(unused::hardware_counters());
    findings
}

#[cfg(test)]
mod tests {
    use super::finding::NEEDS_ROOT;
    use super::*;

    #[test]
    fn only_an_obstacle_makes_it_not_ok() {
        let harmless = vec![
            Finding::met("a", "found"),
            Finding::limits("b", "found"),
            Finding::unchecked("c", NEEDS_ROOT),
            Finding::unused("d", "none"),
        ];
        assert!(Diagnosis::new(harmless.clone()).ok);
        let mut with_obstacle = harmless;
        with_obstacle.push(
            Finding::prevents("e", "none")
                .cost("everything")
                .remedy("a cure"),
        );
        assert!(!Diagnosis::new(with_obstacle).ok);
    }

    #[test]
    fn whatever_the_privileges_every_lack_has_its_cost() {
        let findings = examine();
        for finding in &findings {
            assert!(
                !finding.need.is_empty() && !finding.found.is_empty(),
                "{finding:?}"
            );
            let lacks = !matches!(finding.standing, Standing::Met | Standing::Unchecked);
            assert_eq!(lacks, !finding.cost.is_empty(), "{finding:?}");
            if finding.standing == Standing::Met {
                assert!(finding.remedy.is_empty(), "{finding:?}");
            }
        }
        let mut needs: Vec<&str> = findings
            .iter()
            .map(|finding| finding.need.as_str())
            .collect();
        needs.sort_unstable();
        needs.dedup();
        assert_eq!(needs.len(), findings.len(), "two findings of one name");
    }
}
