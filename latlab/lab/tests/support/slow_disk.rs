// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests on a slow disk need.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a test cannot run here. Its reason is not captured by the test harness, so `scripts/test` can list the
/// skipped test.
pub fn is_skipped(test: &str, programs: &[&str], needs_flash: bool) -> bool {
    let installed = |name: &str| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin"];
        let mut paths = places.iter().map(|place| Path::new(place).join(name));
        paths.any(|path| path.exists())
    };
    let tools = ["mkfs.ext4", "losetup"];
    let mut wanted = programs.iter().chain(&tools);
    let missing = wanted.find(|name| !installed(name));
    let devices = ["/dev/fuse", "/dev/loop-control"];
    let mut devices = devices.into_iter();
    let no_device = devices.find(|device| !Path::new(device).exists());
    // SAFETY: it cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let beside = Path::new(super::LATLAB).with_file_name("flash");
    let why = match (missing, no_device) {
        (Some(name), _) => format!("{name} is not installed"),
        (_, Some(device)) => format!("there is no {device}"),
        _ if !is_root => "it takes root".to_string(),
        _ if needs_flash && !beside.exists() => "flash is not built".to_string(),
        _ => return false,
    };
    debox_skipped::skipped(&format!("{test}: {why}"));
    true
}

/// A directory that workers without root privileges can access.
pub fn place() -> tempfile::TempDir {
    let place = tempfile::Builder::new()
        .prefix("latlab-test-")
        .tempdir_in("/var/tmp")
        .expect("a directory");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).expect("own directory");
    place
}
