// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cargo says of the workspace, for the tests in `tests/`.

use std::process::Command;

use serde_json::Value;

/// `cargo metadata` with more arguments.
pub fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// The elements of a list.
pub fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_string()
}

/// The folder of a package in the workspace, by its manifest.
pub fn folder(root: &str, package: &Value) -> String {
    let manifest = text(&package["manifest_path"]);
    let folder = manifest.strip_prefix(root).expect("below the root");
    let folder = folder.trim_start_matches('/');
    folder.trim_end_matches("/Cargo.toml").to_string()
}
