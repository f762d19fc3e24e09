//! Checks that a disk is as slow as configured, by timing cold opens and cold reads of its files.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use serde::Serialize;

use crate::disk::Disk;

/// Files that are timed.
const FILES: usize = 40;

/// Measured times, sorted, in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    pub service_ns: u64,
    pub cold_open_ns: Vec<u64>,
    pub cold_read_ns: Vec<u64>,
    /// The same files a second time.
    pub warm_open_ns: Vec<u64>,
    pub warm_read_ns: Vec<u64>,
}

impl Checked {
    /// Returns an error unless cold opens and reads waited for the disk.
    pub fn require_slow(&self) -> Result<()> {
        let service = self.service_ns;
        for (what, times) in [
            ("open", &self.cold_open_ns),
            ("4 KiB read", &self.cold_read_ns),
        ] {
            let slow = times.iter().filter(|time| **time >= service).count();
            ensure!(
                slow * 2 > times.len(),
                "the disk is not slow: of {} cold calls of {what}, {slow} took {:.1} ms or more \
                 (half of them {:.3} ms at most)",
                times.len(),
                ms(service),
                ms(median(times))
            );
        }
        Ok(())
    }
}

/// The median of sorted times.
pub fn median(times: &[u64]) -> u64 {
    times.get(times.len() / 2).copied().unwrap_or(0)
}

pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Drops the disk's caches, and times one file in each of several directories.
pub fn check(disk: &Disk) -> Result<Checked> {
    let files = disk.at_full_speed(|| some_files(&disk.mount_point))?;
    ensure!(
        !files.is_empty(),
        "{} has no files of 8 KiB or more to try",
        disk.mount_point.display()
    );
    disk.cool()?;
    let mut checked = Checked {
        service_ns: disk.parameters.service_us * 1000,
        cold_open_ns: Vec::new(),
        cold_read_ns: Vec::new(),
        warm_open_ns: Vec::new(),
        warm_read_ns: Vec::new(),
    };
    for path in &files {
        let (open, read) = timed(path)?;
        checked.cold_open_ns.push(open);
        checked.cold_read_ns.push(read);
    }
    for path in &files {
        let (open, read) = timed(path)?;
        checked.warm_open_ns.push(open);
        checked.warm_read_ns.push(read);
    }
    for times in [
        &mut checked.cold_open_ns,
        &mut checked.cold_read_ns,
        &mut checked.warm_open_ns,
        &mut checked.warm_read_ns,
    ] {
        times.sort_unstable();
    }
    Ok(checked)
}

fn timed(path: &Path) -> Result<(u64, u64)> {
    let mut bytes = [0; 4096];
    let begin = Instant::now();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let open = begin.elapsed();
    // Read in the middle: a file may begin where its directory ends, and would be read
    // sequentially.
    let middle = file.metadata()?.len() / 2 / 4096 * 4096;
    let begin = Instant::now();
    file.read_exact_at(&mut bytes, middle)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok((open.as_nanos() as u64, begin.elapsed().as_nanos() as u64))
}

/// One file of each directory, because the metadata of one directory's files is in the same blocks.
fn some_files(top: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![top.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let mut has_one = false;
        for entry in directory.read_dir()? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && !has_one && entry.metadata()?.len() >= 8192 {
                has_one = true;
                files.push(entry.path());
            }
        }
        if files.len() >= FILES * 8 {
            break;
        }
    }
    // From all parts of the tree, in random order, because adjacent files would be read
    // sequentially.
    files.sort_by_cached_key(|path| {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    });
    files.truncate(FILES);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(open_ns: u64) -> Checked {
        Checked {
            service_ns: 5_000_000,
            cold_open_ns: vec![open_ns; 9],
            cold_read_ns: vec![5_100_000; 9],
            warm_open_ns: vec![],
            warm_read_ns: vec![],
        }
    }

    #[test]
    fn opens_have_to_be_slow() {
        assert!(checked(5_000_000).require_slow().is_ok());
        let error = checked(12_000).require_slow().expect_err("fast opens");
        assert!(
            error.to_string().contains("of 9 cold calls of open, 0"),
            "{error}"
        );
    }
}
