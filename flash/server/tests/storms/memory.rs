// SPDX-License-Identifier: MIT OR Apache-2.0
//! A control group that limits the memory of a process, page cache included.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub struct Group {
    directory: PathBuf,
}

impl Group {
    /// # Errors
    ///
    /// This takes root, and the control group of memory.
    pub fn new(bytes: u64) -> io::Result<Group> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("flash-test-{}", std::process::id());
        let is_unified = root.join("cgroup.controllers").exists();
        if is_unified {
            fs::write(root.join("cgroup.subtree_control"), "+memory")?;
        }
        let (parent, limit) = match is_unified {
            true => (root.to_path_buf(), "memory.max"),
            false => (root.join("memory"), "memory.limit_in_bytes"),
        };
        let directory = parent.join(name);
        fs::create_dir(&directory)?;
        let group = Group { directory };
        fs::write(group.directory.join(limit), bytes.to_string())?;
        Ok(group)
    }

    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    /// The process in it has ended, or is about to.
    fn drop(&mut self) {
        let began = Instant::now();
        while fs::remove_dir(&self.directory).is_err() && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
