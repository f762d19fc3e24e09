//! A directory for the files of one session, removed when the session ends.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A directory that every user can read and only its owner can change. Programs under a session find
/// their shim and their session there, whatever user they run as.
#[derive(Debug)]
pub struct SessionDirectory {
    directory: TempDir,
    /// Locked while this process is alive.
    _lock: File,
}

impl SessionDirectory {
    /// Makes a directory in `place` whose name begins with `prefix`. Removes those with that prefix whose
    /// owner was killed.
    pub fn create_in(place: &Path, prefix: &str) -> Result<SessionDirectory> {
        remove_abandoned(place, prefix);
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(place)
            .with_context(|| format!("cannot make a directory in {}", place.display()))?;
        let lock = File::open(directory.path())?;
        lock.try_lock()
            .with_context(|| format!("cannot lock {}", directory.path().display()))?;
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(SessionDirectory {
            directory,
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes directories left by killed processes. A directory is made before it is locked, so new ones are
/// left alone.
fn remove_abandoned(place: &Path, prefix: &str) {
    const NEW: Duration = Duration::from_secs(60);
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_bytes())
        {
            continue;
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(entry.path());
        let Ok(directory) = directory else { continue };
        let is_old = |found: &fs::Metadata| {
            let age = found.modified().ok().and_then(|then| then.elapsed().ok());
            age.is_some_and(|age| age >= NEW)
        };
        let found = directory.metadata();
        let is_candidate = found
            .is_ok_and(|found| own.as_ref().is_ok_and(|own| *own == found.uid()) && is_old(&found));
        if is_candidate && directory.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const FILE: &str = "a-file";

    fn age(path: &Path) {
        let directory = File::open(path).expect("a directory");
        let then = SystemTime::now() - Duration::from_secs(120);
        directory.set_modified(then).expect("a time");
    }

    #[test]
    fn what_a_killed_one_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().expect("a directory");
        let create = || SessionDirectory::create_in(place.path(), "debox-shim-");
        let in_use = create().expect("a directory");
        fs::write(in_use.path().join(FILE), "in use").expect("a file");
        let [abandoned, new, others] =
            ["debox-shim-a", "debox-shim-b", "debox-other"].map(|name| {
                let path = place.path().join(name);
                fs::create_dir(&path).expect("a directory");
                fs::write(path.join(FILE), "left").expect("a file");
                path
            });
        for path in [in_use.path(), &abandoned, &others] {
            age(path);
        }
        let next = create().expect("a directory");
        let mode = fs::metadata(next.path()).map(|found| found.mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o755));
        assert!(in_use.path().join(FILE).exists() && next.path().exists());
        assert!(new.exists() && others.exists());
        assert!(!abandoned.exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
