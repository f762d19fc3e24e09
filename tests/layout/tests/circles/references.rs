// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file refers to which.

use std::collections::{BTreeMap, BTreeSet};

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
        let modules = self.modules.keys();
        let uses: BTreeMap<&Segments, BTreeSet<Segments>> = modules
            .map(|path| (path, self.references(path).into_keys().collect()))
            .collect();
        let reached: BTreeMap<&Segments, BTreeSet<&Segments>> = uses
            .keys()
            .map(|path| (*path, reached_from(path, &uses)))
            .collect();
        let mut circles = BTreeSet::new();
        for (path, others) in &reached {
            if others.contains(path) {
                let circle = others
                    .iter()
                    .filter(|other| reached[**other].contains(path));
                circles.insert(circle.map(|file| name(file)).collect());
            }
        }
        circles.into_iter().collect()
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
            // Everything in a module, or the variants of an enum.
            let found = self.path_of_import(path, glob, HOPS);
            let found = found.and_then(|found| match self.modules.contains_key(&found) {
                true => Some(found),
                false => self.file_of(&found, HOPS),
            });
            if let Some(found) = found.filter(|found| found != path) {
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

/// The files that a file refers to, directly or through others.
fn reached_from<'a>(
    from: &Segments,
    uses: &'a BTreeMap<&Segments, BTreeSet<Segments>>,
) -> BTreeSet<&'a Segments> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Segments> = uses[from].iter().collect();
    while let Some(path) = next.pop() {
        if reached.insert(path) {
            next.extend(&uses[path]);
        }
    }
    reached
}

/// A module's path, as it is written below the crate.
pub fn name(path: &[String]) -> String {
    match path {
        [] => "(root)".to_string(),
        path => path.join("::"),
    }
}
