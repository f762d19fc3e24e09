// SPDX-License-Identifier: MIT OR Apache-2.0
//! No file of a crate refers, directly or through others, to a file that refers to it.
//!
//! References are the paths in the code and in `use` declarations. A re-export is a second name for what another file
//! defines; whoever uses that name refers to the other file. Code that is only compiled for tests does not count.

mod crates;
mod modules;
mod references;

use std::collections::BTreeSet;

use references::{name, Crate};

#[test]
fn files_do_not_refer_to_each_other_in_circles() {
    let mut wrong = Vec::new();
    for target in crates::targets() {
        let code = Crate {
            modules: modules::read(&target.root),
        };
        for circle in code.circles() {
            let lines = references_in(&code, &circle);
            wrong.push(format!("{}:\n{lines}", target.path));
        }
    }
    assert!(
        wrong.is_empty(),
        "These files refer to each other in circles. Move what they share to a file of its own.\n{}",
        wrong.join("\n")
    );
}

/// A line for each reference from a file of a circle to another one.
fn references_in(code: &Crate, circle: &BTreeSet<String>) -> String {
    let mut lines = String::new();
    for path in code.modules.keys() {
        if !circle.contains(&name(path)) {
            continue;
        }
        for (used, by) in code.references(path) {
            if circle.contains(&name(&used)) {
                let line = format!("  {} uses {}: {}\n", name(path), name(&used), by.join("::"));
                lines.push_str(&line);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().expect("a directory");
        for (file, text) in files {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        }
        let code = Crate {
            modules: modules::read(&folder.path().join("lib.rs")),
        };
        let circles = code.circles().into_iter();
        circles.map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn circles_are_found_however_the_path_is_written() {
        let a = "use crate::b::B; pub struct A(B);";
        for b in [
            "use super::a::A; pub struct B(Box<A>);",
            "use crate::a; pub struct B(Box<a::A>);",
            "pub struct B; impl B { fn f() { let _ = crate::a::A; } }",
            "pub struct B; fn f() { println!(\"{}\", crate::a::A::NAME) }",
            "use super::*; pub struct B(Box<A>);",
            "use crate::A; pub struct B(Box<A>);",
            "mod inside { use super::super::a::A; } pub struct B;",
        ] {
            let lib = "mod a; mod b; pub use a::A; fn f() {}";
            let found = circles(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b)]);
            assert_eq!(found.len(), 1, "{b}: {found:?}");
            assert!(found[0].contains(&"b".to_string()), "{b}: {found:?}");
        }
    }

    #[test]
    fn a_child_and_its_parent_are_a_circle_only_if_both_use_each_other() {
        let child = "use super::Shared; pub fn work(_: Shared) {}";
        let uses = "mod child; pub struct Shared; pub fn f() { child::work(Shared) }";
        let found = circles(&[
            ("lib.rs", "mod parent;"),
            ("parent.rs", uses),
            ("parent/child.rs", child),
        ]);
        assert_eq!(found, [["parent", "parent::child"]]);
        for parent in [
            "mod child; pub use child::work; pub struct Shared;",
            "mod child; pub struct Shared; #[cfg(test)] mod tests { use super::child::work; }",
        ] {
            let found = circles(&[
                ("lib.rs", "mod parent;"),
                ("parent.rs", parent),
                ("parent/child.rs", child),
            ]);
            assert!(found.is_empty(), "{parent}: {found:?}");
        }
    }
}
