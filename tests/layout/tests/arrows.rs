// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dependencies between the crates point one way: programs, then analysis and engine, then the model, then the kit
//! (ARCHITECTURE.md, "The floors").

use std::collections::{BTreeMap, BTreeSet};

use house_layout::{array, folder, metadata, text};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Floor {
    /// Independent of any system.
    Kit,
    /// What DeBox measures, as plain data.
    Model,
    /// Reads and writes measurements; independent of probes.
    Analysis,
    /// Loads probes.
    Engine,
    /// What people install, and the libraries that programs link.
    Program,
    /// Tests and benchmarks. They may use everything, and no crate that is installed uses them.
    Test,
}

/// The floor of a crate, by the path of its folder.
fn floor(path: &str) -> Floor {
    match path {
        "debox/model" => Floor::Model,
        "debox/history" | "debox/report" | "debox/export" | "hbench/results"
        | "latlab/analysis" | "latlab/disk" => Floor::Analysis,
        "debox/engine" => Floor::Engine,
        "debox/capi" | "debox/cli" | "debox/preload" | "flash/server" | "hbench/suite"
        | "latlab/lab" => Floor::Program,
        _ if path.starts_with("kit/") => Floor::Kit,
        _ if path.starts_with("debox/bindings/") => Floor::Program,
        _ if path.starts_with("tests/") || path.contains("/tests/") || path.contains("/bench/") => {
            Floor::Test
        }
        _ => panic!("{path} stands on no floor: add it to floor() in tests/layout"),
    }
}

struct House {
    /// The folder of each crate of the workspace, by the crate's id.
    paths: BTreeMap<String, String>,
    /// What each crate depends on when it is built without its tests, including external crates.
    needs: BTreeMap<String, BTreeSet<String>>,
    names: BTreeMap<String, String>,
}

impl House {
    fn read() -> House {
        let all = metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
        let root = text(&all["workspace_root"]);
        let members: BTreeSet<String> = array(&all["workspace_members"]).map(text).collect();
        let mut house = House {
            paths: BTreeMap::new(),
            needs: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        for package in array(&all["packages"]) {
            let id = text(&package["id"]);
            house.names.insert(id.clone(), text(&package["name"]));
            if members.contains(&id) {
                house.paths.insert(id, folder(&root, package));
            }
        }
        for node in array(&all["resolve"]["nodes"]) {
            let is_needed =
                |need: &&Value| array(&need["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            let needs = array(&node["deps"]).filter(is_needed);
            let needs = needs.map(|need| text(&need["pkg"])).collect();
            house.needs.insert(text(&node["id"]), needs);
        }
        assert!(
            house.paths.len() > 15,
            "only {} crates were found",
            house.paths.len()
        );
        house
    }

    /// The workspace crates that a crate depends on directly.
    fn own_needs<'a>(&'a self, id: &str) -> impl Iterator<Item = &'a str> {
        let needs = self.needs.get(id).into_iter().flatten();
        needs.filter_map(|need| self.paths.get(need).map(String::as_str))
    }

    /// Whether the crate depends on a crate of that name, directly or indirectly.
    fn reaches(&self, id: &str, name: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut next = vec![id.to_string()];
        while let Some(id) = next.pop() {
            if self.names.get(&id).is_some_and(|own| own == name) {
                return true;
            }
            if seen.insert(id.clone()) {
                next.extend(self.needs.get(&id).into_iter().flatten().cloned());
            }
        }
        false
    }
}

/// Whether a crate of one floor may use a crate of another floor, or of the same.
fn may_use(user: Floor, used: Floor) -> bool {
    match (user, used) {
        (Floor::Test, _) => true,
        (_, Floor::Test) => false,
        // Reports and exports are made from histories.
        (Floor::Kit, Floor::Kit) | (Floor::Analysis, Floor::Analysis) => true,
        // The command includes the shim that it preloads.
        (Floor::Program, Floor::Program) => true,
        (Floor::Engine, Floor::Analysis) => false,
        _ => user > used,
    }
}

#[test]
fn arrows_point_one_way() {
    let house = House::read();
    let mut wrong = Vec::new();
    for (id, path) in &house.paths {
        for need in house.own_needs(id) {
            if !may_use(floor(path), floor(need)) {
                wrong.push(format!("{path} uses {need}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_what_is_above_the_engine_needs_libbpf() {
    let house = House::read();
    let mut wrong = Vec::new();
    for (id, path) in &house.paths {
        let is_above =
            matches!(floor(path), Floor::Engine | Floor::Test) || house.reaches(id, "debox");
        if !is_above && house.reaches(id, "libbpf-sys") {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let analysis = [
        "debox/model",
        "debox/history",
        "debox/report",
        "hbench/suite",
        "latlab/lab",
    ];
    for path in analysis {
        let id = house.paths.iter().find(|(_, own)| *own == path);
        let (id, _) = id.unwrap_or_else(|| panic!("there is no {path}"));
        assert!(!house.reaches(id, "debox"), "{path} needs the engine");
    }
}

#[test]
fn a_library_of_the_kit_has_two_users() {
    let house = House::read();
    let mut wrong = Vec::new();
    for path in house
        .paths
        .values()
        .filter(|path| floor(path) == Floor::Kit)
    {
        let uses = |id: &&String| house.own_needs(id).any(|need| need == path);
        let users = house.paths.keys().filter(uses).count();
        if users < 2 {
            wrong.push(format!("{path} has {users}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
