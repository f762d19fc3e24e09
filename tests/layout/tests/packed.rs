// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crates that are published can be built from their folder alone, which is all that `cargo package` packs. `make packages`
//! builds each from its packed file, which takes minutes; this test finds the usual mistakes in an instant.

use std::fs;
use std::path::{Component, Path, PathBuf};

use house_layout::{array, folder, metadata, text};
use serde_json::Value;
use syn::visit::{self, Visit};

struct Published {
    root: PathBuf,
    packages: Vec<Value>,
}

impl Published {
    fn read() -> Published {
        let mut all = metadata(&["--no-deps"]);
        let root = PathBuf::from(text(&all["workspace_root"]));
        let packages = all["packages"].as_array_mut().expect("a list");
        packages.retain(|package| {
            array(&package["publish"]).count() > 0 || package["publish"].is_null()
        });
        let packages = std::mem::take(packages);
        assert!(packages.len() > 10, "only {} are published", packages.len());
        Published { root, packages }
    }

    fn folder(&self, package: &Value) -> PathBuf {
        let root = self.root.to_str().expect("UTF-8");
        self.root.join(folder(root, package))
    }
}

#[test]
fn a_published_crate_needs_published_crates_of_a_version() {
    let published = Published::read();
    let names: Vec<String> = published
        .packages
        .iter()
        .map(|package| text(&package["name"]))
        .collect();
    let mut wrong = Vec::new();
    for package in &published.packages {
        for need in array(&package["dependencies"]) {
            if need["path"].is_null() || need["kind"] == "dev" {
                continue;
            }
            let (name, need_name) = (text(&package["name"]), text(&need["name"]));
            if !names.contains(&need_name) {
                wrong.push(format!("{name} needs {need_name}, which is not published"));
            }
            if need["req"] == "*" {
                wrong.push(format!(
                    "{name} does not say which version of {need_name} it needs"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_published_crate_has_the_licences() {
    let published = Published::read();
    let mut wrong = Vec::new();
    for package in &published.packages {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let own = published.folder(package).join(licence);
            if fs::read(&own).ok() != fs::read(published.root.join(licence)).ok() {
                wrong.push(format!("ln -s ../../{licence} {}", own.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_published_crate_includes_no_file_from_elsewhere() {
    let published = Published::read();
    let mut wrong = Vec::new();
    let mut found = 0;
    for package in &published.packages {
        let folder = published.folder(package);
        let mut files = vec![folder.join("build.rs")];
        for directory in ["src", "build"] {
            add_sources(&folder.join(directory), &mut files);
        }
        for file in files.iter().filter(|file| file.exists()) {
            let source = fs::read_to_string(file).expect("it can be read");
            let source = syn::parse_file(&source).expect("it compiles");
            let mut included = Included(Vec::new());
            included.visit_file(&source);
            found += included.0.len();
            for path in included.0 {
                let path = file.parent().expect("a folder").join(path);
                if !plain(&path).starts_with(&folder) {
                    wrong.push(format!("{} includes {}", file.display(), path.display()));
                }
            }
        }
    }
    assert!(found > 30, "only {found} included files were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Build scripts name files in other ways, too.
#[test]
fn a_build_script_names_no_file_from_elsewhere() {
    let published = Published::read();
    let mut wrong = Vec::new();
    for package in &published.packages {
        let script = published.folder(package).join("build.rs");
        let text = fs::read_to_string(&script).unwrap_or_default();
        wrong.extend(text.contains("../").then_some(script));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Adds the sources below a directory, without those of unit tests, which are not built from a packed crate.
fn add_sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.expect("it can be read").path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_test {
            add_sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            files.push(path);
        }
    }
}

/// The path without `..`, as in a packed crate, which has no links.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Paths in `include_str!` and its kin, and in `#[path]`; not in code for tests.
struct Included(Vec<String>);

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        meta => meta.path().is_ident("test"),
    })
}

impl<'a> Visit<'a> for Included {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, attribute: &'a syn::Attribute) {
        if let syn::Meta::NameValue(named) = &attribute.meta {
            if let (true, syn::Expr::Lit(value)) = (named.path.is_ident("path"), &named.value) {
                if let syn::Lit::Str(path) = &value.lit {
                    self.0.push(path.value());
                }
            }
        }
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        let includes = ["include", "include_str", "include_bytes"];
        if includes.iter().any(|name| called.path.is_ident(name)) {
            // Files that build scripts make are named by concat!, not by a text.
            if let Ok(path) = called.parse_body::<syn::LitStr>() {
                self.0.push(path.value());
            }
        }
    }
}
