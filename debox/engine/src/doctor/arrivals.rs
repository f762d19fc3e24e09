// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether processes that join a control group, a name or a user are followed by events.

use super::finding::{Finding, NEEDS_ROOT};
use crate::kernel;
use crate::targets::try_arrivals;

pub(super) fn examine() -> Finding {
    let need = "processes that join later";
    if !kernel::may_load_probes() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    match try_arrivals() {
        Ok(()) => Finding::met(need, "the kernel tells of them"),
        Err(error) => Finding::limits(need, format!("{error:#}"))
            .cost("processes that join --cgroup, --unit, --container, --comm or --user are found by scans, up to a second later")
            .remedy("a kernel with CONFIG_CGROUPS=y, as Debian's are"),
    }
}
