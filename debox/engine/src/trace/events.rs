// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracepoints that the sampled call tree counts.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use libbpf_rs::btf::types::Typedef;
use libbpf_rs::btf::Btf;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::skeleton::TraceSkelBuilder;

/// The tracepoints that the probes count, by number, from the names of their sections.
pub(super) fn names() -> Vec<String> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut object = MaybeUninit::uninit();
        let Ok(open) = TraceSkelBuilder::default().open(&mut object) else {
            return Vec::new();
        };
        let mut numbered = BTreeMap::new();
        for program in open.open_object().progs() {
            let name = program.name().to_string_lossy();
            let section = program.section().to_string_lossy();
            let number = name
                .strip_prefix("passed_")
                .and_then(|n| n.parse::<u32>().ok());
            if let (Some(number), Some(event)) = (number, section.strip_prefix("raw_tp/")) {
                numbered.insert(number, event.to_string());
            }
        }
        numbered.into_values().collect()
    });
    names.clone()
}

/// The probes' tracepoints that exist in this kernel.
pub(super) fn existing() -> Vec<String> {
    let Ok(types) = Btf::from_vmlinux() else {
        return Vec::new();
    };
    // Every tracepoint that probes can attach to has a type of this name.
    let is_there = |event: &&str| {
        types
            .type_by_name::<Typedef<'_>>(&format!("btf_trace_{event}"))
            .is_some()
    };
    names()
        .into_iter()
        .filter(|event| is_there(&event.as_str()))
        .collect()
}
