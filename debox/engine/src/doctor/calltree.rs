//! Checks how the kernel allows functions inside calls to be traced (`--trace`).

use std::io;

use super::finding::{Finding, NEEDS_ROOT};
use crate::trace::{self, Method, Offer};

pub(super) fn examine(bpf: &io::Result<()>) -> Finding {
    let need = "call tree (--trace)";
    if bpf.is_err() {
        return Finding::unchecked(need, NEEDS_ROOT);
    }
    judge(need, &trace::offers())
}

fn judge(need: &str, offers: &[Offer]) -> Finding {
    let works = |offer: &&Offer| offer.lack.is_none() && offer.method != Method::Sampled;
    if let Some(best) = offers.iter().find(works) {
        return Finding::met(
            need,
            format!("entry and return of functions, by {}", best.method.name()),
        );
    }
    let lacks: Vec<String> = offers
        .iter()
        .filter_map(|offer| Some(format!("{} {}", offer.method.name(), offer.lack.as_ref()?)))
        .collect();
    Finding::limits(need, lacks.join("; "))
        .cost(
            "--trace shows samples of the stack and the tracepoints that calls passed: how often, \
             not how long",
        )
        .remedy("a kernel that lets its functions be patched, as Debian's do")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Standing;

    #[test]
    fn samples_alone_are_a_limit() {
        let offer = |method, lack: Option<&str>| Offer {
            method,
            lack: lack.map(str::to_string),
        };
        let none = [
            offer(Method::Session, Some("not built into this kernel")),
            offer(Method::Sampled, None),
        ];
        let finding = judge("n", &none);
        assert_eq!(finding.standing, Standing::Limits);
        assert_eq!(finding.found, "kprobe.session not built into this kernel");
        let pairs = [
            offer(Method::Session, Some("not built into this kernel")),
            offer(Method::Pairs, None),
            offer(Method::Sampled, None),
        ];
        let finding = judge("n", &pairs);
        assert_eq!(finding.standing, Standing::Met);
        assert!(finding.found.contains("fentry"), "{}", finding.found);
    }
}
