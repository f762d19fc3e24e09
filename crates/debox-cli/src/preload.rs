//! The user tap's shim for the command, laid out where the loader finds it.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The shim's file, removed when the session ends.
pub struct Preload {
    directory: PathBuf,
}

impl Preload {
    pub fn install() -> Result<Preload> {
        let directory = std::env::temp_dir().join(format!("debox-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory); // of a debox that was killed, with the same number
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let preload = Preload { directory };
        fs::write(preload.library(), debox_preload::LIBRARY)
            .with_context(|| format!("cannot write {}", preload.library().display()))?;
        Ok(preload)
    }

    fn library(&self) -> PathBuf {
        self.directory.join("libdebox_preload.so")
    }

    /// The value of LD_PRELOAD: the shim first, so that it is the outermost.
    pub fn variable(&self) -> std::ffi::OsString {
        let mut value = self.library().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            value.push(":");
            value.push(others);
        }
        value
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
