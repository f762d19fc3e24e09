// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the Apache module and the preload shim. Also used by `tests/together`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Seen from any crate two folders below the root.
const ADAPTERS: &str = "../../flash/adapters";

/// Builds the adapters into the directory. `None`: there is no apxs, or the preload shim was wanted and no compiler is
/// there.
pub fn build(target: &str, into: &Path) -> Option<PathBuf> {
    let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join(ADAPTERS);
    let needed = if target == "apache" { "apxs" } else { "cc" };
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {needed} make")])
        .output();
    if !found.is_ok_and(|found| found.status.success()) {
        return None;
    }
    let done = Command::new("make")
        .arg("-C")
        .arg(adapters)
        .arg(format!("OUT={}", into.display()))
        .arg(target)
        .output()
        .expect("make can be executed");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let name = if target == "apache" {
        "mod_flashpache.so"
    } else {
        "libflash_paths.so"
    };
    Some(into.join(name))
}
