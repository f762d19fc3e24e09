//! The user tap's shim for the command, laid out where the loader finds it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "debox-shim-";
const NAME: &str = "libdebox_preload.so";

/// The shim's file, removed when the session ends.
pub struct Preload {
    directory: TempDir,
    /// Locked while debox lives.
    _lock: File,
}

impl Preload {
    pub fn install() -> Result<Preload> {
        Preload::install_in(&std::env::temp_dir())
    }

    fn install_in(place: &Path) -> Result<Preload> {
        remove_abandoned(place);
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(place)
            .with_context(|| format!("cannot make a directory in {}", place.display()))?;
        let lock = File::open(directory.path())?;
        lock.try_lock()
            .with_context(|| format!("cannot lock {}", directory.path().display()))?;
        let library = directory.path().join(NAME);
        fs::write(&library, debox_preload::LIBRARY)
            .with_context(|| format!("cannot write {}", library.display()))?;
        // Whoever the command runs as must be able to load it, whatever the umask.
        fs::set_permissions(&library, Permissions::from_mode(0o644))?;
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        Ok(Preload {
            directory,
            _lock: lock,
        })
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// What a program needs in its environment to have the shim, and the shim to find its session.
    pub fn environment(&self, address: &str) -> [(&'static str, std::ffi::OsString); 2] {
        [
            ("LD_PRELOAD", self.variable()),
            (debox_preload::SESSION_VARIABLE, address.into()),
        ]
    }

    /// The value of LD_PRELOAD: the shim first, so that it is the outermost.
    fn variable(&self) -> std::ffi::OsString {
        let mut value = self.library().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            value.push(":");
            value.push(others);
        }
        value
    }
}

/// What a debox left behind that was killed. A directory is made before it is locked, so that new ones
/// are left alone.
fn remove_abandoned(place: &Path) {
    const NEW: Duration = Duration::from_secs(60);
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
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

    fn age(path: &Path) {
        let directory = File::open(path).expect("a directory");
        let then = SystemTime::now() - Duration::from_secs(120);
        directory.set_modified(then).expect("a time");
    }

    #[test]
    fn what_a_killed_one_left_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().expect("a directory");
        let in_use = Preload::install_in(place.path()).expect("a shim");
        let [abandoned, new, others] =
            ["debox-shim-a", "debox-shim-b", "debox-other"].map(|name| {
                let path = place.path().join(name);
                fs::create_dir(&path).expect("a directory");
                fs::write(path.join(NAME), "a shim").expect("a file");
                path
            });
        for path in [in_use.directory.path(), &abandoned, &others] {
            age(path);
        }
        let next = Preload::install_in(place.path()).expect("a shim");
        let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o777).ok();
        assert_eq!(mode(&next.library()), Some(0o644));
        assert_eq!(mode(next.directory.path()), Some(0o755));
        assert!(in_use.library().exists() && next.library().exists());
        assert!(new.exists() && others.exists());
        assert!(!abandoned.exists());
        let path = next.directory.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
