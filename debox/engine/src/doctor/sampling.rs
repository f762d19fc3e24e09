//! Checks whether a program's CPU use can be sampled (detail `samples`).

use super::finding::{Finding, NEEDS_ROOT};
use crate::kernel;
use crate::samples::Clocks;

pub(super) fn examine() -> Finding {
    let need = "samples of what it computes";
    match Clocks::open() {
        Ok(_) => Finding::met(need, "each CPU's clock can be opened (perf_event_open)"),
        Err(_) if !kernel::has_bpf_privilege() => Finding::unchecked(need, NEEDS_ROOT),
        Err(error) => Finding::limits(need, format!("perf_event_open: {error}"))
            .cost("reports do not say in which functions a program computes")
            .remedy(
                "allow perf events: a kernel with CONFIG_PERF_EVENTS=y, and no seccomp filter that refuses \
                 perf_event_open",
            ),
    }
}
