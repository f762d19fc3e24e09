//! The files of both classes, and the names that requests ask for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::content::Key;
use crate::signals;
use crate::workload::Kind;

/// Directories of cold names in one directory above them.
const GROUP: u32 = 64;

/// Names are numbered: hot files first, then the files of the cold directories, then one missing name in each of
/// these directories.
///
/// Each cold name has a directory of its own: the names of one directory are read from the disk together, so only
/// the first of them would be cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub seed: u64,
    pub hot: u32,
    /// Number of cold directories.
    pub cold: u32,
    /// Size of each file in bytes.
    pub hot_bytes: u64,
    pub cold_bytes: u64,
}

impl Tree {
    pub fn bytes(&self) -> u64 {
        u64::from(self.hot) * self.hot_bytes + u64::from(self.cold) * self.cold_bytes
    }

    /// The name of the file in a cold directory.
    pub fn cold_name(&self, directory: u32) -> u32 {
        self.hot + directory
    }

    /// The name in a cold directory that no file has.
    pub fn missing_name(&self, directory: u32) -> u32 {
        self.hot + self.cold + directory
    }

    pub fn kind(&self, name: u32) -> Kind {
        match name {
            _ if name < self.hot => Kind::Hot,
            _ if name < self.missing_name(0) => Kind::Cold,
            _ => Kind::Missing,
        }
    }

    /// The size of the file with this name; `None` if there is no such file.
    pub fn size(&self, name: u32) -> Option<u64> {
        match self.kind(name) {
            Kind::Hot => Some(self.hot_bytes),
            Kind::Cold => Some(self.cold_bytes),
            _ => None,
        }
    }

    pub fn key(&self, name: u32) -> Key {
        Key::new(self.seed, u64::from(name))
    }

    /// The path below the tree's directory.
    pub fn path(&self, name: u32) -> String {
        let cold = |directory: u32, file: &str| {
            format!(
                "cold/{:04}/{:02}/{file}",
                directory / GROUP,
                directory % GROUP
            )
        };
        match self.kind(name) {
            Kind::Hot => format!("hot/{name:05}"),
            Kind::Cold => cold(name - self.cold_name(0), "file"),
            _ => cold(name - self.missing_name(0), "none"),
        }
    }

    /// Writes the files. `progress` gets the number of bytes written so far.
    pub fn create(&self, root: &Path, mut progress: impl FnMut(u64)) -> Result<()> {
        let mut done = 0;
        let mut bytes = vec![0; self.hot_bytes.max(self.cold_bytes) as usize];
        for name in 0..self.missing_name(0) {
            signals::check()?;
            let path = root.join(self.path(name));
            let size = self.size(name).unwrap_or(0);
            let content = &mut bytes[..size as usize];
            self.key(name).fill(0, content);
            let directory = path.parent().context("a file is in a directory")?;
            fs::create_dir_all(directory)
                .and_then(|()| fs::write(&path, content))
                .with_context(|| format!("cannot write {}", path.display()))?;
            done += size;
            progress(done);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const TREE: Tree = Tree {
        seed: 3,
        hot: 5,
        cold: 130,
        hot_bytes: 100,
        cold_bytes: 300,
    };

    #[test]
    fn names_are_distinct_and_exist_unless_they_are_missing() {
        let root = tempfile::tempdir().unwrap();
        let mut last = 0;
        TREE.create(root.path(), |bytes| last = bytes).unwrap();
        assert_eq!(last, TREE.bytes());
        let mut paths = HashSet::new();
        let mut cold_directories = HashSet::new();
        for name in 0..TREE.hot + 2 * TREE.cold {
            let relative = TREE.path(name);
            let path = root.path().join(&relative);
            match (TREE.kind(name), TREE.size(name)) {
                (Kind::Missing, None) => {
                    assert!(!path.exists() && path.parent().unwrap().exists());
                }
                (_, size) => {
                    let content = fs::read(&path).unwrap();
                    assert_eq!(Some(content.len() as u64), size);
                    assert!(TREE.key(name).matches(0, &content));
                }
            }
            if TREE.kind(name) == Kind::Cold {
                cold_directories.insert(path.parent().unwrap().to_path_buf());
            }
            assert!(paths.insert(relative), "{name}");
        }
        assert_eq!(cold_directories.len(), TREE.cold as usize);
    }
}
