//! What the disk can do: cold names in a second, with many of them asked for at the same time.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::Tree;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskRate {
    /// Names that were looked up, and their files read.
    pub names: u64,
    pub seconds: f64,
}

impl DiskRate {
    pub fn per_second(&self) -> f64 {
        self.names as f64 / self.seconds
    }
}

/// Looks up names and reads their files, this many at the same time. Begins with new names during `duration`, and
/// waits for the last ones: the disk has work to the end.
///
/// The tree must have been mounted again before: each name is cold once.
pub fn disk_rate(
    root: &Path,
    tree: &Tree,
    missing: f64,
    outstanding: u32,
    duration: Duration,
) -> Result<DiskRate> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(tree.seed);
    let mut directories: Vec<u32> = (0..tree.cold).collect();
    directories.shuffle(&mut random);
    let names: Vec<u32> = directories
        .into_iter()
        .map(|directory| match random.random::<f64>() < missing {
            true => tree.missing_name(directory),
            false => tree.cold_name(directory),
        })
        .collect();
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let work = || -> Result<u64> {
        let mut done = 0;
        let mut bytes = Vec::new();
        while began.elapsed() < duration {
            let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let path = root.join(tree.path(*name));
            let found = File::open(&path).and_then(|mut file| {
                bytes.clear();
                file.read_to_end(&mut bytes)
            });
            let length = match found {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                found => {
                    Some(found.with_context(|| format!("cannot read {}", path.display()))? as u64)
                }
            };
            ensure!(
                length == tree.size(*name),
                "{} is not what latlab wrote",
                path.display()
            );
            done += 1;
        }
        Ok(done)
    };
    let done: Result<Vec<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..outstanding.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| {
            let done = worker.join();
            done.unwrap_or_else(|_| anyhow::bail!("a thread failed"))
        });
        joined.collect()
    });
    let names = done?.iter().sum();
    ensure!(names > 0, "the disk brought no name in {duration:?}");
    Ok(DiskRate {
        names,
        seconds: began.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree {
        seed: 1,
        hot: 1,
        cold: 40,
        hot_bytes: 10,
        cold_bytes: 10,
    };

    #[test]
    fn each_name_is_read_once_and_a_wrong_tree_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        TREE.create(root.path(), |_| ()).unwrap();
        let hour = Duration::from_secs(3600);
        let rate = disk_rate(root.path(), &TREE, 0.5, 4, hour).unwrap();
        assert_eq!(rate.names, 40);
        assert!(rate.per_second() > 0.0);
        std::fs::write(root.path().join(TREE.path(7)), "other").unwrap();
        let error = disk_rate(root.path(), &TREE, 0.0, 4, hour).unwrap_err();
        assert!(
            error.to_string().contains("not what latlab wrote"),
            "{error}"
        );
    }
}
