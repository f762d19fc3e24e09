//! Files that users name.
//!
//! Only regular files are read ([`input`]). An output file replaces an older one only when it is complete
//! ([`output`]), is none of the input files ([`same`]), and does not follow a link that another user has
//! planted ([`planted`]).

pub mod input;
pub mod output;
pub mod planted;
pub mod same;

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;

/// The kind of a file, with its article; `None` for a regular file.
fn kind(of: FileType) -> Option<&'static str> {
    let kinds = [
        (of.is_dir(), "a directory"),
        (of.is_fifo(), "a FIFO"),
        (of.is_socket(), "a socket"),
        (of.is_char_device(), "a character device"),
        (of.is_block_device(), "a block device"),
    ];
    match kinds.into_iter().find(|(is, _)| *is) {
        Some((_, name)) => Some(name),
        None if of.is_file() => None,
        None => Some("no regular file"),
    }
}
