//! Requests for names of a tree of hot and cold files, in a given order.

use anyhow::{ensure, Result};

use super::{Expected, Request, NO_CLASS};
use crate::classes::Tree;
use crate::dynamic::Visitor;

pub struct ClassSource {
    tree: Tree,
    names: Vec<u32>,
    next: usize,
    step: usize,
}

impl ClassSource {
    pub fn new(tree: Tree, names: Vec<u32>, process: u16, processes: u16) -> Result<ClassSource> {
        ensure!(!names.is_empty(), "there is no name to ask for");
        Ok(ClassSource {
            tree,
            next: usize::from(process) % names.len(),
            step: usize::from(processes),
            names,
        })
    }

    pub fn draw(&mut self) -> Request {
        let name = self.names[self.next];
        self.next = (self.next + self.step) % self.names.len();
        Request {
            kind: self.tree.kind(name),
            class: NO_CLASS,
            path: name,
            size: self.tree.size(name),
            visitor: Visitor::default(),
            checked: false,
        }
    }

    pub fn path(&self, name: u32) -> String {
        format!("/{}", self.tree.path(name))
    }

    /// `None` for names that do not exist.
    pub fn expected(&self, request: &Request) -> Option<Expected> {
        Some(Expected {
            before: Vec::new(),
            file: self.tree.key(request.path),
            file_size: self.tree.size(request.path)?,
            after: b"",
        })
    }
}
