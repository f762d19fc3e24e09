// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and program targets of the workspace.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// A target that is installed or linked, with its root file.
pub struct Target {
    /// The folder of its crate.
    pub path: String,
    pub root: PathBuf,
}

/// All targets except tests, benchmarks, examples and build scripts.
pub fn targets() -> Vec<Target> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--no-deps",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let root = text(&all["workspace_root"]);
    let mut targets = Vec::new();
    for package in array(&all["packages"]) {
        let manifest = text(&package["manifest_path"]);
        let folder = manifest.strip_prefix(&root).expect("below the root");
        let folder = folder.trim_start_matches('/');
        let folder = folder.trim_end_matches("/Cargo.toml");
        for target in array(&package["targets"]) {
            let is_code = |kind: &Value| {
                let kind = kind.as_str().unwrap_or_default();
                kind == "bin" || kind.ends_with("lib")
            };
            if array(&target["kind"]).any(is_code) {
                targets.push(Target {
                    path: folder.to_string(),
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

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_string()
}
