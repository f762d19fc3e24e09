// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which benchmarks stand for what programs ask of the kernel (`mapping.toml`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

const DECLARED: &str = include_str!("../mapping.toml");

/// The mapping, as it is compiled in.
pub static MAPPING: LazyLock<Mapping> = LazyLock::new(Mapping::read);

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Primitive {
    pub name: String,
    /// Benchmarks; the smallest transfer first, if there are several.
    pub costs: Vec<String>,
    /// Null calls in one operation of the benchmarks.
    #[serde(default)]
    pub entries: u32,
    /// Context switches in one operation of the benchmarks.
    #[serde(default)]
    pub switches: u32,
    /// It takes no time where files are not stored.
    #[serde(default)]
    pub on_disk: bool,
    #[serde(default)]
    calls: Vec<String>,
}

/// A kind of wait that another machine makes shorter or longer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    pub kind: String,
    /// A benchmark.
    pub cost: String,
    /// Null calls in one operation of the benchmark.
    #[serde(default)]
    pub entries: u32,
    /// There is none where files are not stored.
    #[serde(default)]
    pub on_disk: bool,
}

/// Benchmarks of a process alone, and beside another one that does the same.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    pub user: [String; 2],
    pub entry: [String; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    entry: String,
    after_work: String,
    switch: String,
    fault: String,
    user: Vec<String>,
    together: Together,
    primitive: Vec<Primitive>,
    wait: Vec<Wait>,
}

#[derive(Debug)]
pub struct Mapping {
    /// The benchmark of entering the kernel and leaving it.
    pub entry: String,
    /// The same after computing.
    pub after_work: String,
    pub switch: String,
    pub fault: String,
    /// Benchmarks of computation in user mode.
    pub user: Vec<String>,
    pub together: Together,
    primitives: BTreeMap<String, Primitive>,
    by_call: BTreeMap<String, String>,
    waits: BTreeMap<String, Wait>,
}

impl Mapping {
    /// # Panics
    ///
    /// Its file is wrong, which a test finds.
    fn read() -> Mapping {
        let declared: Declared = toml::from_str(DECLARED).expect("a test reads it");
        let mut by_call = BTreeMap::new();
        for primitive in &declared.primitive {
            for call in &primitive.calls {
                let other = by_call.insert(call.clone(), primitive.name.clone());
                assert!(other.is_none(), "{call} belongs to two primitives");
            }
        }
        let primitives = declared.primitive.into_iter();
        let waits = declared.wait.into_iter();
        Mapping {
            entry: declared.entry,
            after_work: declared.after_work,
            switch: declared.switch,
            fault: declared.fault,
            user: declared.user,
            together: declared.together,
            primitives: primitives.map(|one| (one.name.clone(), one)).collect(),
            by_call,
            waits: waits.map(|one| (one.kind.clone(), one)).collect(),
        }
    }

    pub fn primitives(&self) -> impl Iterator<Item = &Primitive> {
        self.primitives.values()
    }

    pub fn primitive(&self, name: &str) -> Option<&Primitive> {
        self.primitives.get(name)
    }

    /// Null calls in one operation of a benchmark, as far as a primitive says so.
    pub fn entries(&self, benchmark: &str) -> u32 {
        let has_it = |one: &&Primitive| one.costs.iter().any(|cost| cost == benchmark);
        let found = self.primitives.values().find(has_it);
        found.map_or(0, |one| one.entries)
    }

    /// The primitive of a call, whatever its arguments are.
    pub fn of_call(&self, call: &str) -> Option<&str> {
        self.by_call.get(call).map(String::as_str)
    }

    /// What waits of this kind are scaled by.
    pub fn of_wait(&self, kind: &str) -> Option<&Wait> {
        self.waits.get(kind)
    }

    /// All benchmarks that it names.
    pub fn benchmarks(&self) -> impl Iterator<Item = &str> {
        let alone = [&self.entry, &self.after_work, &self.switch, &self.fault].into_iter();
        let of_primitives = self.primitives.values().flat_map(|one| &one.costs);
        let all = alone.chain(&self.user).chain(of_primitives);
        let of_waits = self.waits.values().map(|one| &one.cost);
        let together = self.together.user.iter().chain(&self.together.entry);
        all.chain(of_waits).chain(together).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_primitive_has_a_cost_and_every_name_is_a_call() {
        for primitive in MAPPING.primitives.values() {
            assert!(!primitive.costs.is_empty(), "{primitive:?}");
        }
        let known: std::collections::BTreeSet<String> =
            (0..1000).map(debox_model::calls::name).collect();
        for call in MAPPING.by_call.keys() {
            assert!(known.contains(call), "{call} is no system call");
        }
        assert_eq!(MAPPING.of_call("openat"), Some("file.open"));
        assert_eq!(MAPPING.of_call("ioctl"), None);
        assert_eq!(MAPPING.of_wait("timer"), None);
    }
}
