//! What the kernel has in its caches, without changing it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use memmap2::{Mmap, MmapOptions};
use serde::Serialize;

use super::Tree;
use crate::sys;

/// The state of the hot files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hot {
    /// Names that the kernel would have to look up on the disk.
    pub names_not_cached: u64,
    pub pages: u64,
    /// Pages that are not in memory.
    pub pages_not_cached: u64,
}

impl Hot {
    pub fn is_resident(&self) -> bool {
        self.names_not_cached == 0 && self.pages_not_cached == 0
    }
}

/// Brings the hot files and their names into memory.
pub fn warm(root: &Path, tree: &Tree) -> Result<()> {
    let mut bytes = Vec::new();
    for name in 0..tree.hot {
        let path = root.join(tree.path(name));
        bytes.clear();
        File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}

/// Keeps the bytes of the hot files in memory until it is dropped. Without it the kernel may take them back for other
/// programs during a run, and a request for them has to wait for the disk whatever the server does.
pub fn hold(root: &Path, tree: &Tree) -> Result<Vec<Mmap>> {
    let hold_one = |name: u32| {
        let path = root.join(tree.path(name));
        let held = File::open(&path).and_then(|file| {
            // SAFETY: nothing reads from it.
            let held = unsafe { MmapOptions::new().map(&file) }?;
            held.lock()?;
            Ok(held)
        });
        held.with_context(|| format!("cannot lock {} into memory", path.display()))
    };
    (0..tree.hot).map(hold_one).collect()
}

/// Looks at all hot files. Only their owner gets true answers.
pub fn hot(root: &Path, tree: &Tree) -> Result<Hot> {
    let mut found = Hot::default();
    for name in 0..tree.hot {
        let path = root.join(tree.path(name));
        let cannot = || format!("cannot find out what is cached of {}", path.display());
        found.names_not_cached += u64::from(!sys::is_name_cached(&path).with_context(cannot)?);
        // A cached name costs nothing here; otherwise it is looked up after it was counted.
        let pages = File::open(&path).and_then(|file| sys::cached_pages(&file));
        let (cached, pages) = pages.with_context(cannot)?;
        found.pages += pages;
        found.pages_not_cached += pages - cached;
    }
    Ok(found)
}

/// The number of these names that the kernel need not look up on the disk.
pub fn cached_names(root: &Path, tree: &Tree, names: &[u32]) -> Result<u64> {
    let mut cached = 0;
    for name in names {
        let path = root.join(tree.path(*name));
        let is_cached = sys::is_name_cached(&path)
            .with_context(|| format!("cannot find out whether {} is cached", path.display()))?;
        cached += u64::from(is_cached);
    }
    Ok(cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_resident_and_what_was_never_looked_up_is_not() {
        let tree = Tree {
            seed: 1,
            hot: 3,
            cold: 2,
            hot_bytes: 10_000,
            cold_bytes: 1,
        };
        let root = tempfile::tempdir().unwrap();
        tree.create(root.path(), |_| ()).unwrap();
        warm(root.path(), &tree).unwrap();
        let found = hot(root.path(), &tree).unwrap();
        assert_eq!(found.pages, 9);
        assert!(found.is_resident(), "{found:?}");
        // Made a moment ago, so in the cache; the other name was never asked for.
        let asked = [tree.cold_name(0), tree.missing_name(0)];
        assert_eq!(cached_names(root.path(), &tree, &asked).unwrap(), 1);
        // An ordinary look-up makes the kernel remember that there is no such name.
        assert!(!root.path().join(tree.path(asked[1])).exists());
        assert_eq!(cached_names(root.path(), &tree, &asked).unwrap(), 2);
    }
}
