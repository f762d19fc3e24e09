// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file refers to which.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::modules::{Module, Segments};

/// The longest chain of re-exports that is followed.
const HOPS: usize = 16;

/// The modules of a crate.
pub struct Crate {
    pub modules: BTreeMap<Segments, Module>,
}

impl Crate {
    /// Groups of files of which each refers to each other, directly or indirectly.
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let names: Vec<String> = self.modules.keys().map(|path| name(path)).collect();
        let places = self.modules.keys().zip(0..).collect::<BTreeMap<_, usize>>();
        let mut graph = DiGraphMap::<usize, ()>::new();
        for (path, at) in &places {
            for used in self.references(path).keys() {
                graph.add_edge(*at, places[used], ());
            }
        }
        let groups = tarjan_scc(&graph).into_iter();
        let circles = groups.filter(|group| group.len() > 1);
        circles
            .map(|group| group.iter().map(|at| names[*at].clone()).collect())
            .collect()
    }

    /// The other files that a file refers to, with one path by which it does so.
    pub fn references(&self, path: &Segments) -> BTreeMap<Segments, Segments> {
        let mut references = BTreeMap::new();
        for mention in &self.modules[path].mentions {
            let found = self.definition(path, mention, HOPS);
            if let Some(found) = found.filter(|found| found != path) {
                references.insert(found, mention.clone());
            }
        }
        for glob in &self.modules[path].globs {
            let found = self.path_of_import(path, glob, HOPS);
            let found = found.filter(|found| found != path && self.modules.contains_key(found));
            if let Some(found) = found {
                references.insert(found, glob.clone());
            }
        }
        references
    }

    /// The file that defines what a path in another file names. `None`: it is in another crate, or names a whole
    /// module, whose content is then mentioned elsewhere.
    fn definition(&self, from: &Segments, mention: &[String], hops: usize) -> Option<Segments> {
        let path = self.path_of_import(from, mention, hops)?;
        self.file_of(&path, hops)
    }

    /// Follows a path from the root of the crate, through re-exports, to the file of its item.
    fn file_of(&self, path: &[String], hops: usize) -> Option<Segments> {
        let mut at = Segments::new();
        let mut rest = path;
        while let [first, others @ ..] = rest {
            let module = self.modules.get(&at)?;
            if module.children.contains(first) {
                at.push(first.clone());
                rest = others;
                continue;
            }
            if module.items.contains(first) {
                return Some(at);
            }
            let hops = hops.checked_sub(1)?;
            if let Some(import) = module.imports.get(first) {
                let mut target = self.path_of_import(&at, import, hops)?;
                target.extend(others.iter().cloned());
                return self.file_of(&target, hops);
            }
            // What is not found is made by a macro of this file.
            return match self.path_of_glob(&at, first, hops) {
                Some(mut path) => {
                    path.extend(others.iter().cloned());
                    self.file_of(&path, hops)
                }
                None => Some(at),
            };
        }
        None
    }

    /// What a name stands for that a `use` of everything in another module brings into a file.
    fn path_of_glob(&self, from: &Segments, name: &str, hops: usize) -> Option<Segments> {
        let mut globs = self.modules[from].globs.iter();
        globs.find_map(|glob| {
            let mut place = self.path_of_import(from, glob, hops.checked_sub(1)?)?;
            let module = self.modules.get(&place)?;
            let has = module.items.contains(name)
                || module.imports.contains_key(name)
                || module.children.contains(name);
            place.push(name.to_string());
            has.then_some(place)
        })
    }

    /// A path that is written in a file, from the root of the crate; `None` if it begins in another crate.
    fn path_of_import(&self, from: &Segments, written: &[String], hops: usize) -> Option<Segments> {
        let module = &self.modules[from];
        let mut at = from.clone();
        let mut rest = written;
        match rest.first()?.as_str() {
            "crate" => {
                at = Segments::new();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            first if module.children.contains(first) => {}
            first => {
                let hops = hops.checked_sub(1)?;
                at = match module.imports.get(first) {
                    // Another crate.
                    Some(import) if import.first().is_some_and(|root| root == first) => {
                        return None
                    }
                    Some(import) => self.path_of_import(from, import, hops)?,
                    None => self.path_of_glob(from, first, hops)?,
                };
                rest = &rest[1..];
            }
        }
        Some(at.into_iter().chain(rest.iter().cloned()).collect())
    }
}

/// A module's path, as it is written below the crate.
pub fn name(path: &[String]) -> String {
    match path {
        [] => "(root)".to_string(),
        path => path.join("::"),
    }
}
