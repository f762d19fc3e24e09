// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine must have, and turns.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Tests of this crate run one after the other: the load that one makes would show in another's
/// time waiting for a CPU.
pub fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());

    // A test that failed holds nothing that the next one could find broken.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a program that `scripts/setup` installs. Its absence fails the test: a green run must
/// mean that every program was tried.
#[track_caller]
pub fn require(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers lie in /usr/sbin, which is not on everybody's PATH. Debian's own directories come
    // first: what else is called python3 may be a script that looks for one.
    let places = ["/usr/bin", "/usr/sbin", "/bin"]
        .map(PathBuf::from)
        .into_iter();
    places
        .chain(std::env::split_paths(&path))
        .chain([PathBuf::from("/usr/local/go/bin")])
        .map(|directory| directory.join(program))
        .find(|candidate| is_executable(candidate))
        .unwrap_or_else(|| panic!("{program} is not installed: run scripts/setup test"))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
