// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and program targets of the workspace.

use std::path::PathBuf;

use house_layout::{array, folder, metadata, text};
use serde_json::Value;

/// A target that is installed or linked, with its root file.
pub struct Target {
    /// The folder of its crate.
    pub path: String,
    pub root: PathBuf,
}

/// All targets except tests, benchmarks, examples and build scripts.
pub fn targets() -> Vec<Target> {
    let all = metadata(&["--no-deps"]);
    let root = text(&all["workspace_root"]);
    let mut targets = Vec::new();
    for package in array(&all["packages"]) {
        let folder = folder(&root, package);
        for target in array(&package["targets"]) {
            let is_code = |kind: &Value| {
                let kind = kind.as_str().unwrap_or_default();
                kind == "bin" || kind.ends_with("lib")
            };
            if array(&target["kind"]).any(is_code) {
                targets.push(Target {
                    path: folder.clone(),
                    root: PathBuf::from(text(&target["src_path"])),
                });
            }
        }
    }
    assert!(
        targets.len() > 15,
        "only {} targets were found",
        targets.len()
    );
    targets
}
