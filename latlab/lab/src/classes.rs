//! Two classes of requests: *hot* ones for files that are in memory, and *cold* ones for names that have not
//! been looked up since the file system was mounted. Some of the cold names do not exist.
//!
//! - [`Tree`]: the files and their names;
//! - [`Schedule`]: when each request is due, and which name it asks for;
//! - [`caches`]: whether hot files are in the kernel's caches, and cold names are not;
//! - [`disk_rate`]: how many cold names the disk can look up and read in a second.

pub mod caches;
mod disk_rate;
mod schedule;
mod tree;

pub use disk_rate::{disk_rate, DiskRate};
pub use schedule::{Rates, Schedule};
pub use tree::Tree;
