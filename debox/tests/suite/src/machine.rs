// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests need of the machine: root, one test at a time, places for files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Fails, rather than skips, without root: a green run must mean that something was tested.
#[track_caller]
pub fn require_root() {
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    assert_eq!(user, 0, "these tests load BPF programs: run them as root");
}

/// Says that a case could not be tried here and why. Written past the test runner's capture, so
/// that it shows in a green run too.
pub fn skipped(name: &str, reason: &str) {
    static COUNT: AtomicU32 = AtomicU32::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    debox_skipped::skipped(&format!("{name}: {reason} ({count} in this test program)"));
}

/// Whether the kernel's type information has a field or function of this name.
pub fn kernel_has(name: &str) -> bool {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let text = [b"\0", name.as_bytes(), b"\0"].concat();
    types.windows(text.len()).any(|window| window == text)
}

/// How many times longer than usual things may take here: `DEBOX_TESTS_SLOWNESS`, which emulated
/// machines set. It widens upper bounds and limits; what must at least be seen stays.
pub fn slowness() -> u64 {
    let told = std::env::var("DEBOX_TESTS_SLOWNESS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Polls until `condition` holds; false when it did not within `limit`.
pub fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit * slowness() as u32;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A compiled truth program.
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("OUT_DIR")).join("programs").join(name)
}

/// Held while a test measures: tests of all test programs take turns, since a second session
/// would slow the first one's calls and take its CPU.
#[derive(Debug)]
pub struct Exclusive {
    _file: File,
}

impl Exclusive {
    /// Waits for its turn.
    pub fn take() -> Self {
        let path = Path::new(env!("OUT_DIR")).join("turn.lock");
        let file = File::create(path).expect("the build directory is writable");
        // SAFETY: the descriptor is open for as long as `file` lives.
        let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        assert_eq!(result, 0, "flock: {}", std::io::Error::last_os_error());
        Self { _file: file }
    }
}

/// A directory of its own for one run, removed with everything in it when the run is dropped, also
/// when the test fails. It lies in the build directory: unlike /tmp, that is seldom in memory only.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty directory.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("scratch-{}-{number}", std::process::id());
        let path = Path::new(env!("OUT_DIR")).join(name);
        std::fs::create_dir(&path).expect("the build directory is writable");
        Self { path }
    }

    /// The path of a file in it, which need not exist.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
