//! The files of SPECweb99, as described in section 1.1 of Ruan's thesis: directories of 36 files,
//! in four classes of nine. The weights of class, file and directory determine which file is
//! requested.

mod create;

pub use create::{create, load, Created, Manifest, MANIFEST};

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::content::Key;

pub const CLASSES: u8 = 4;
pub const FILES_PER_CLASS: u8 = 9;
const FILES_PER_DIRECTORY: u32 = CLASSES as u32 * FILES_PER_CLASS as u32;

/// The files' sizes in class c are multiples of this, divided by ten: 0.1, 1, 10 and 100 KiB.
const TENTHS: [u64; 4] = [1_024, 10_240, 102_400, 1_024_000];
/// Table 1.1.
const CLASS_WEIGHTS: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
/// The nine files of a class by popularity: the first has weight 1, the next 1/2, and so on. Their
/// shares are those of Table 1.1.
const BY_POPULARITY: [u8; 9] = [5, 4, 6, 3, 7, 2, 8, 9, 1];

/// One file. `number` is 1 to 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct File {
    pub directory: u32,
    pub class: u8,
    pub number: u8,
}

impl File {
    /// A number that identifies the file, independent of the size of the set.
    pub fn index(self) -> u32 {
        self.directory * FILES_PER_DIRECTORY
            + u32::from(self.class) * u32::from(FILES_PER_CLASS)
            + u32::from(self.number - 1)
    }

    pub fn from_index(index: u32) -> File {
        let within = index % FILES_PER_DIRECTORY;
        File {
            directory: index / FILES_PER_DIRECTORY,
            class: (within / u32::from(FILES_PER_CLASS)) as u8,
            number: (within % u32::from(FILES_PER_CLASS)) as u8 + 1,
        }
    }

    pub fn size(self) -> u64 {
        TENTHS[usize::from(self.class)] * u64::from(self.number) / 10
    }

    /// The path below the set's directory: `dir00012/class1_5`.
    pub fn path(self) -> String {
        format!(
            "dir{:05}/class{}_{}",
            self.directory, self.class, self.number
        )
    }

    /// The file named at the end of a URL's path.
    pub fn from_path(path: &str) -> Option<File> {
        let at = path.rfind("dir")?;
        let (directory, name) = path[at + 3..].split_once('/')?;
        let (class, number) = name.strip_prefix("class")?.split_once('_')?;
        let file = File {
            directory: digits(directory)?,
            class: u8::try_from(digits(class)?).ok()?,
            number: u8::try_from(digits(number)?).ok()?,
        };
        let exists = file.class < CLASSES && (1..=FILES_PER_CLASS).contains(&file.number);
        exists.then_some(file)
    }
}

/// Without this check, `parse` would accept a sign.
fn digits(text: &str) -> Option<u32> {
    let all = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// All files of a directory.
pub fn files_of(directory: u32) -> impl Iterator<Item = File> {
    let first = directory * FILES_PER_DIRECTORY;
    (first..first + FILES_PER_DIRECTORY).map(File::from_index)
}

/// Bytes of a directory.
pub fn directory_bytes() -> u64 {
    files_of(0).map(File::size).sum()
}

/// Size of the set for a number of simultaneous connections (formula 1.1).
pub fn bytes_for_connections(connections: u64) -> u64 {
    let hundredths = connections.saturating_mul(322).saturating_add(12_200);
    (u128::from(hundredths) << 20).div_euclid(100).min(1 << 62) as u64
}

/// The number of directories whose size is closest to `bytes`, at least one.
pub fn directories_for(bytes: u64) -> u32 {
    let directory = directory_bytes();
    let count = (bytes + directory / 2) / directory;
    u32::try_from(count)
        .unwrap_or(u32::MAX)
        .clamp(1, MAX_DIRECTORIES)
}

/// 470 GiB. With this limit, a file's index and the kind of request fit into 32 bits together.
pub const MAX_DIRECTORIES: u32 = 99_999;

/// A set of this many directories, whose contents follow from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSet {
    pub seed: u64,
    pub directories: u32,
}

impl FileSet {
    pub fn bytes(&self) -> u64 {
        u64::from(self.directories) * directory_bytes()
    }

    pub fn key(&self, file: File) -> Key {
        Key::new(self.seed, u64::from(file.index()))
    }
}

/// Draws files with SPECweb99's distribution.
#[derive(Debug, Clone)]
pub struct Popularity {
    /// Sums of 1/1, 1/2, ... 1/n: directory d is drawn below `directories[d]`.
    directories: Vec<f64>,
    classes: Vec<f64>,
    files: Vec<f64>,
}

impl Popularity {
    pub fn new(directories: u32) -> Popularity {
        Popularity {
            directories: sums((1..=directories.max(1)).map(|rank| 1.0 / f64::from(rank))),
            classes: sums(CLASS_WEIGHTS),
            files: sums((1..=FILES_PER_CLASS).map(|rank| 1.0 / f64::from(rank))),
        }
    }

    pub fn draw(&self, random: &mut impl Rng) -> File {
        let class = below(&self.classes, random) as u8;
        let number = BY_POPULARITY[below(&self.files, random)];
        let directory = below(&self.directories, random) as u32;
        File {
            directory,
            class,
            number,
        }
    }

    /// The probability that a request asks for this file.
    pub fn probability(&self, file: File) -> f64 {
        let rank = BY_POPULARITY
            .iter()
            .position(|number| *number == file.number)
            .unwrap_or(0);
        share(&self.directories, file.directory as usize)
            * share(&self.classes, usize::from(file.class))
            * share(&self.files, rank)
    }
}

fn sums(weights: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .into_iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

fn below(sums: &[f64], random: &mut impl Rng) -> usize {
    let total = sums.last().copied().unwrap_or(1.0);
    let drawn = random.random::<f64>() * total;
    // Rounding may make the product equal to the total.
    sums.partition_point(|sum| *sum <= drawn)
        .min(sums.len().saturating_sub(1))
}

fn share(sums: &[f64], index: usize) -> f64 {
    let before = if index == 0 { 0.0 } else { sums[index - 1] };
    (sums[index] - before) / sums[sums.len() - 1]
}

#[cfg(test)]
mod tests;
