//! A disk that is as slow as one says, and slow for metadata too, so that `open` and `stat` of a file
//! that is not cached truly block.
//!
//! An image file is served through FUSE by a process that answers each request when a disk of the
//! given speed would. A loop device with direct I/O stands on it, and ext4 on that. Limits of the block
//! layer (blkio) do not slow metadata reads, and a network file system is slow for every `open`, the
//! cached ones too.
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
