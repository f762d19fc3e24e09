// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured: the machine, its kernel, and what limits the process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `None`: this machine does not say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `uname -r` and `uname -v`.
    pub kernel: String,
    pub kernel_build: String,
    pub architecture: String,
    pub cpu_model: Option<String>,
    pub microcode: Option<String>,
    /// Data and unified caches of the measured CPU, innermost first.
    pub cache_bytes: Vec<u64>,
    pub cpus_online: u32,
    /// CPUs that this process may use.
    pub cpus_allowed: Vec<u32>,
    pub memory_bytes: Option<u64>,
    pub page_bytes: u64,
    pub transparent_huge_pages: Option<String>,
    pub clock_source: Option<String>,
    pub frequency_driver: Option<String>,
    pub frequency_governor: Option<String>,
    pub boost: Option<String>,
    pub virtualization: Option<String>,
    pub container: Option<String>,
    /// The kernel's answer for each vulnerability of the CPU.
    pub mitigations: BTreeMap<String, String>,
    /// CPUs' worth of time that the process's control groups grant. `None`: no limit.
    pub quota_cpus: Option<f64>,
    /// How long a period is, in which they may run for `quota_cpus` times as long.
    #[serde(default)]
    pub quota_period_ns: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    /// The process's mode in /proc/self/status: 0 is none, 2 a filter.
    pub seccomp: Option<u32>,
    pub user_id: u32,
    /// File system of the directory for temporary files.
    pub file_system: Option<String>,
    pub security_modules: Option<String>,
}

/// What takes the CPU from a process that never sleeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// How long the process looked.
    pub observed_ns: u64,
    /// The part of this time that it did not run.
    pub taken_share: f64,
    pub longest_ns: u64,
    /// Interruptions longer than a microsecond, per second.
    pub per_second: f64,
    /// Processes that run or want to, on average over the last minute.
    pub load_average: Option<f64>,
}

/// The names and values of what differs.
pub fn differences(a: &Environment, b: &Environment) -> Vec<(String, String, String)> {
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    flatten("", serde_json::to_value(a).unwrap_or_default(), &mut one);
    flatten("", serde_json::to_value(b).unwrap_or_default(), &mut other);
    let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let get = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).cloned().unwrap_or_else(|| "none".to_string())
    };
    let pairs = names
        .into_iter()
        .map(|name| (name.clone(), get(&one, name), get(&other, name)));
    pairs.filter(|(_, a, b)| a != b).collect()
}

fn flatten(name: &str, value: Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = match name {
                    "" => field,
                    _ => format!("{name}.{field}"),
                };
                flatten(&name, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(into.insert(name.to_string(), text)),
        other => drop(into.insert(name.to_string(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let a = Environment {
            kernel: "6.1".to_string(),
            mitigations: [("meltdown".to_string(), "Mitigation: PTI".to_string())].into(),
            ..Environment::default()
        };
        let mut b = a.clone();
        assert!(differences(&a, &b).is_empty());
        b.mitigations.clear();
        b.quota_cpus = Some(0.5);
        let wanted = [
            ("mitigations.meltdown", "Mitigation: PTI", "none"),
            ("quota_cpus", "none", "0.5"),
        ];
        let wanted = wanted.map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string()));
        assert_eq!(differences(&a, &b), wanted);
    }
}
