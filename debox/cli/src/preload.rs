//! The user tap's shim for the command, laid out where the loader finds it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use debox::SessionDirectory;

const PREFIX: &str = "debox-shim-";
const NAME: &str = "libdebox_preload.so";

/// The shim's file, removed when the session ends.
pub struct Preload {
    directory: SessionDirectory,
}

impl Preload {
    pub fn install() -> Result<Preload> {
        Preload::install_in(&std::env::temp_dir())
    }

    fn install_in(place: &Path) -> Result<Preload> {
        let directory = SessionDirectory::create_in(place, PREFIX)?;
        let library = directory.path().join(NAME);
        fs::write(&library, debox_preload::LIBRARY)
            .with_context(|| format!("cannot write {}", library.display()))?;
        // The command may run as another user, and must be able to load it whatever the umask.
        fs::set_permissions(&library, Permissions::from_mode(0o644))?;
        Ok(Preload { directory })
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join(NAME)
    }

    /// The environment variables that load the shim, and let the shim find its session.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn every_user_can_load_the_shim() {
        let place = tempfile::tempdir().expect("a directory");
        let shim = Preload::install_in(place.path()).expect("a shim");
        let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o777).ok();
        assert_eq!(mode(&shim.library()), Some(0o644));
        assert_eq!(mode(shim.directory.path()), Some(0o755));
        let path = shim.directory.path().to_owned();
        drop(shim);
        assert!(!path.exists());
    }
}
