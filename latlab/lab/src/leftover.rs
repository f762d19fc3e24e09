//! Finds what a killed latlab has left: directories that have its process number in their names, and that it
//! locks while it lives.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::sys;

const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a lock. Returns false if another process holds it. On a file system without locks it always succeeds.
pub fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Like [`lock`], but retries for some time.
pub fn lock_patiently(file: &File) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !lock(file) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// The process number in a name such as `latlab-1234-...`.
fn process_of(name: &str, prefix: &str) -> Option<u32> {
    let (process, _) = name.strip_prefix(prefix)?.split_once('-')?;
    process.parse().ok()
}

/// Whether only this user can have written there. A name proves nothing, because any user can create
/// it, and latlab acts on what it finds in such a directory.
fn is_own(directory: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    fs::symlink_metadata(directory)
        .is_ok_and(|found| found.uid() == sys::user() && found.mode() & OTHERS_WRITE == 0)
}

/// Directories of this user's processes that have ended: no process has the number, and the lock on the file
/// or directory that `locked` returns is free. (A process in another namespace has no number here.)
pub fn abandoned(
    place: &Path,
    prefixes: &[&str],
    locked: impl Fn(&Path) -> PathBuf,
) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let mut processes = prefixes
                .iter()
                .filter_map(|prefix| process_of(&name, prefix));
            processes
                .next()
                .is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
        })
        .map(|entry| entry.path())
        .filter(|directory| is_own(directory))
        .filter(|directory| File::open(locked(directory)).is_ok_and(|file| lock(&file)))
        .collect();
    found.sort();
    found
}

/// Removes an abandoned directory, and returns a sentence about it.
pub fn remove(directory: &Path) -> Option<String> {
    let name = directory.display();
    match fs::remove_dir_all(directory) {
        Ok(()) => Some(format!("removed {name}, which a killed latlab had left")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => Some(format!(
            "cannot remove {name}, which a killed latlab had left: {error}"
        )),
    }
}

/// Prints each sentence on its own line.
pub fn say(sentences: &[String]) {
    for sentence in sentences {
        kit_console::say!("latlab: {sentence}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_process() {
        assert_eq!(process_of("latlab-12-8080", "latlab-"), Some(12));
        assert_eq!(process_of("latlab-run-12-x", "latlab-"), None);
        assert_eq!(process_of("latlab-12", "latlab-"), None);
        assert_eq!(process_of("other-12-x", "latlab-"), None);
    }

    #[test]
    fn only_what_nobody_holds_is_abandoned() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = place.path().join(name);
            fs::create_dir(&directory).unwrap();
            directory
        };
        // No process can have this number.
        let gone = make("latlab-4194305-a");
        let held = make("latlab-4194305-b");
        make(&format!("latlab-{}-c", std::process::id()));
        make("something");
        let lock = File::open(&held).unwrap();
        lock.try_lock().unwrap();
        let found = || abandoned(place.path(), &["latlab-"], Path::to_path_buf);
        assert_eq!(found(), std::slice::from_ref(&gone));
        drop(lock);
        assert_eq!(found(), [gone.clone(), held.clone()]);
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&gone, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(found(), [held]);
    }
}
