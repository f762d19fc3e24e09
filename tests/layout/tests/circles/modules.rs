// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modules of a crate that have files of their own, and the paths that each of them mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, UseTree, Visibility};

/// A path as it is written, such as `crate::session::Tap`.
pub type Segments = Vec<String>;

/// A file.
#[derive(Default)]
pub struct Module {
    /// Modules that are declared here and have files of their own.
    pub children: BTreeSet<String>,
    /// What is visible under a name here but defined elsewhere.
    pub imports: BTreeMap<String, Segments>,
    /// Modules whose whole content is visible here.
    pub globs: Vec<Segments>,
    /// What is defined here.
    pub items: BTreeSet<String>,
    /// Every path that is mentioned, including those of `use` declarations, but without re-exports: these only
    /// give a second name to what another file defines.
    pub mentions: BTreeSet<Segments>,
}

/// The modules of a crate by their paths; the root's is empty. Code that is only compiled for tests is left out.
pub fn read(root: &Path) -> BTreeMap<Segments, Module> {
    let mut modules = BTreeMap::new();
    let folder = root.parent().expect("a file is in a folder");
    add_file(root, folder, Vec::new(), &mut modules);
    modules
}

/// `folder` is where the files of the module's children are.
fn add_file(file: &Path, folder: &Path, path: Segments, modules: &mut BTreeMap<Segments, Module>) {
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text);
    let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut reader = Reader::default();
    reader.visit_file(&parsed);
    for (name, given) in reader.files {
        let mut child = path.clone();
        child.push(name.clone());
        let given = given.map(|given| file.parent().expect("in a folder").join(given));
        let usual = [
            folder.join(format!("{name}.rs")),
            folder.join(&name).join("mod.rs"),
        ];
        let found = given.into_iter().chain(usual).find(|file| file.exists());
        let found = found.unwrap_or_else(|| panic!("{}: no file for {name}", file.display()));
        add_file(&found, &folder.join(&name), child, modules);
    }
    modules.insert(path, reader.module);
}

#[derive(Default)]
struct Reader {
    module: Module,
    /// Declared children, with the file if an attribute gives it.
    files: Vec<(String, Option<PathBuf>)>,
    /// How many modules are open inside the file.
    depth: usize,
}

impl Reader {
    fn add_use(&mut self, tree: &UseTree, mut before: Segments, is_shown: bool) {
        match tree {
            UseTree::Path(part) => {
                before.push(part.ident.to_string());
                self.add_use(&part.tree, before, is_shown);
            }
            UseTree::Name(name) if name.ident == "self" => self.import(None, before, is_shown),
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.import(None, before, is_shown);
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    before.push(rename.ident.to_string());
                }
                self.import(Some(rename.rename.to_string()), before, is_shown);
            }
            UseTree::Glob(_) => {
                if self.depth == 0 {
                    self.module.globs.push(before);
                }
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, before.clone(), is_shown);
                }
            }
        }
    }

    fn import(&mut self, name: Option<String>, path: Segments, is_shown: bool) {
        if !is_shown {
            self.mention(path.clone());
        }
        let name = name.or_else(|| path.last().cloned());
        if let (Some(name), 0) = (name, self.depth) {
            self.module.imports.insert(name, path);
        }
    }

    /// In a module inside the file, `super` is one module less.
    fn mention(&mut self, mut path: Segments) {
        for _ in 0..self.depth {
            match path.first().map(String::as_str) {
                Some("super") => drop(path.remove(0)),
                _ => break,
            }
        }
        if !path.is_empty() {
            self.module.mentions.insert(path);
        }
    }

    /// Paths in the arguments of macros, which are not parsed.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 && !path.is_empty() {
                        self.mention(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            self.mention(std::mem::take(&mut path));
            colons = 0;
        }
        self.mention(path);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if let (Some(name), 0) = (name(item), self.depth) {
            self.module.items.insert(name);
        }
        match item {
            Item::Mod(module) if module.content.is_none() => {
                let given = module.attrs.iter().find_map(given_file);
                self.module.children.insert(module.ident.to_string());
                self.files.push((module.ident.to_string(), given));
            }
            Item::Mod(_) => {
                self.depth += 1;
                visit::visit_item(self, item);
                self.depth -= 1;
            }
            Item::Use(declared) => {
                let is_shown = !matches!(declared.vis, Visibility::Inherited);
                self.add_use(&declared.tree, Vec::new(), is_shown);
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        self.mention(segments.map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        self.add_tokens(of.tokens.clone());
        visit::visit_macro(self, of);
    }
}

/// `#[cfg(test)]`, also with further conditions.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let mut conditions = list.tokens.clone().into_iter();
    match conditions.next() {
        Some(TokenTree::Ident(name)) if name == "test" => true,
        Some(TokenTree::Ident(name)) if name == "feature" => {
            list.tokens.to_string().ends_with("\"fuzzing\"")
        }
        Some(TokenTree::Ident(name)) if name == "all" || name == "any" => {
            matches!(conditions.next(), Some(TokenTree::Group(group))
                if group.stream().to_string().starts_with("test"))
        }
        _ => false,
    }
}

/// The file of `#[path = "FILE"]`.
fn given_file(attribute: &Attribute) -> Option<PathBuf> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(file),
            ..
        }) if pair.path.is_ident("path") => Some(PathBuf::from(file.value())),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
