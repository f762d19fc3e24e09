//! Simulates a slow disk of configurable speed. Metadata is slow, too, so `open` and `stat` of an
//! uncached file really block.
//!
//! A process serves an image file through FUSE, and answers each request when a disk of the configured
//! speed would. A loop device with direct I/O uses that file, and ext4 is mounted on the loop device.
//! The alternatives do not work: the block layer's limits (blkio) do not slow down metadata reads, and
//! a network file system makes every `open` slow, even of cached files.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod command;
mod daemon;
mod disk;
mod model;

pub use check::{check, median, Checked};
pub use command::{run, Options};
pub use disk::Disk;
pub use model::Parameters;
