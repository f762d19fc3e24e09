// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients and the path server say to each other over a Unix socket of type SOCK_SEQPACKET. One message is one
//! question or one answer; flash/adapters/README.md has the layout as a table. All numbers are little-endian.

use rustix::fs::{FileType, Statx};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const VERSION: u16 = 1;
/// Of a path, without a zero byte. The kernel takes no longer ones either (PATH_MAX).
pub const MAX_PATH: usize = 4095;
/// The longest question.
pub const MAX_QUESTION: usize = size_of::<QuestionHead>() + MAX_PATH;

const QUESTION: [u8; 4] = *b"FPQ?";
const ANSWER: [u8; 4] = *b"FPA!";

/// What is wanted of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A descriptor to read from. The first bytes of the file are in memory.
    Open,
    /// A descriptor that refers to the inode and cannot be read (O_PATH).
    Stat,
}

/// Bits of `flags`.
pub mod flag {
    /// The last part of the path is not followed if it is a symbolic link.
    pub const NOFOLLOW: u32 = 1;
    /// It has to be a directory.
    pub const DIRECTORY: u32 = 2;
    /// The descriptor has O_NONBLOCK.
    pub const NONBLOCK: u32 = 4;
    /// The descriptor has O_NOATIME.
    pub const NOATIME: u32 = 8;
    pub const ALL: u32 = NOFOLLOW | DIRECTORY | NONBLOCK | NOATIME;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct QuestionHead {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    flags: U32,
    id: U32,
    path_length: U32,
}

/// A question, which is well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// Comes back in the answer.
    pub id: u32,
    pub kind: Kind,
    pub flags: u32,
    /// Absolute, without a zero byte.
    pub path: &'a [u8],
}

/// Why a message is no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    Length,
    Magic,
    Version,
    Kind,
    Flags,
    Path,
}

impl<'a> Question<'a> {
    /// # Errors
    ///
    /// The first part of the message that is wrong.
    pub fn read(message: &'a [u8]) -> Result<Question<'a>, Malformed> {
        let (head, path) = QuestionHead::ref_from_prefix(message).map_err(|_| Malformed::Length)?;
        if head.magic != QUESTION {
            return Err(Malformed::Magic);
        }
        if head.version.get() != VERSION {
            return Err(Malformed::Version);
        }
        let kind = match head.kind.get() {
            1 => Kind::Open,
            2 => Kind::Stat,
            _ => return Err(Malformed::Kind),
        };
        let flags = head.flags.get();
        if flags & !flag::ALL != 0 {
            return Err(Malformed::Flags);
        }
        if path.len() > MAX_PATH || head.path_length.get() as usize != path.len() {
            return Err(Malformed::Length);
        }
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(Malformed::Path);
        }
        Ok(Question {
            id: head.id.get(),
            kind,
            flags,
            path,
        })
    }

    /// The message.
    pub fn write(&self) -> Vec<u8> {
        let head = QuestionHead {
            magic: QUESTION,
            version: VERSION.into(),
            kind: match self.kind {
                Kind::Open => 1.into(),
                Kind::Stat => 2.into(),
            },
            flags: self.flags.into(),
            id: self.id.into(),
            path_length: (self.path.len() as u32).into(),
        };
        [head.as_bytes(), self.path].concat()
    }
}

/// An answer, as it is sent. It has a descriptor if `error` is 0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    magic: [u8; 4],
    version: U16,
    reserved: U16,
    pub id: U32,
    /// As Linux numbers errors, or 0.
    pub error: U32,
    /// How much of the path names the root.
    pub root_length: U32,
    pub mode: U32,
    pub links: U32,
    pub user: U32,
    pub group: U32,
    pub device_major: U32,
    pub device_minor: U32,
    /// The root as the path server sees it: for a client in a container the same path may be another directory.
    pub root_device_major: U32,
    pub root_device_minor: U32,
    pub modified_ns: U32,
    pub inode: U64,
    pub root_inode: U64,
    pub size: U64,
    pub blocks: U64,
    pub modified: I64,
}

const _: () = assert!(size_of::<QuestionHead>() == 20 && size_of::<Answer>() == 96);

/// What identifies a directory while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub device: (u32, u32),
    pub inode: u64,
}

impl Place {
    pub fn of(status: &Statx) -> Place {
        Place {
            device: (status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
        }
    }
}

impl Answer {
    /// There is no descriptor.
    pub fn refusal(id: u32, error: i32) -> Answer {
        let mut answer = Answer::with_head(id);
        answer.error = error.unsigned_abs().max(1).into();
        answer
    }

    /// With a descriptor of what `status` is about.
    pub fn of(id: u32, status: &Statx, root: Place, root_length: usize) -> Answer {
        let modified = status.stx_mtime;
        Answer {
            root_length: (root_length as u32).into(),
            mode: u32::from(status.stx_mode).into(),
            links: status.stx_nlink.into(),
            user: status.stx_uid.into(),
            group: status.stx_gid.into(),
            device_major: status.stx_dev_major.into(),
            device_minor: status.stx_dev_minor.into(),
            root_device_major: root.device.0.into(),
            root_device_minor: root.device.1.into(),
            modified_ns: modified.tv_nsec.into(),
            inode: status.stx_ino.into(),
            root_inode: root.inode.into(),
            size: status.stx_size.into(),
            blocks: status.stx_blocks.into(),
            modified: modified.tv_sec.into(),
            ..Answer::with_head(id)
        }
    }

    fn with_head(id: u32) -> Answer {
        let mut answer = Answer::new_zeroed();
        answer.magic = ANSWER;
        answer.version = VERSION.into();
        answer.id = id.into();
        answer
    }

    /// # Errors
    ///
    /// The first part of the message that is wrong.
    pub fn read(message: &[u8]) -> Result<Answer, Malformed> {
        let answer = Answer::read_from_bytes(message).map_err(|_| Malformed::Length)?;
        if answer.magic != ANSWER {
            return Err(Malformed::Magic);
        }
        if answer.version.get() != VERSION || answer.reserved.get() != 0 {
            return Err(Malformed::Version);
        }
        if answer.root_length.get() as usize > MAX_PATH {
            return Err(Malformed::Path);
        }
        Ok(answer)
    }

    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    pub fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode.get()) == FileType::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question() -> impl Strategy<Value = (u32, bool, u32, Vec<u8>)> {
        let path = prop::collection::vec(1u8.., 0..MAX_PATH);
        (any::<u32>(), any::<bool>(), 0..=flag::ALL, path)
    }

    proptest! {
        #[test]
        fn a_question_is_read_as_it_was_written((id, opens, flags, rest) in question()) {
            let path = [b"/", rest.as_slice()].concat();
            let kind = if opens { Kind::Open } else { Kind::Stat };
            let question = Question { id, kind, flags, path: &path };
            let message = question.write();
            prop_assert_eq!(Question::read(&message), Ok(question));
        }

        /// One wrong byte is found, or changes what is asked. Nothing panics.
        #[test]
        fn what_is_read_is_what_would_be_written(
            (id, opens, flags, rest) in question(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            length in any::<prop::sample::Index>(),
        ) {
            let path = [b"/", rest.as_slice()].concat();
            let kind = if opens { Kind::Open } else { Kind::Stat };
            let mut message = Question { id, kind, flags, path: &path }.write();
            let at = at.index(message.len());
            message[at] = byte;
            if let Ok(read) = Question::read(&message) {
                prop_assert_eq!(read.write(), message.clone());
            }
            // A message that was cut off, and one that goes on.
            let shorter = &message[..length.index(message.len())];
            prop_assert!(Question::read(shorter).is_err());
            message.push(b'x');
            prop_assert!(Question::read(&message).is_err());
        }

        #[test]
        fn bytes_are_no_question(message in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(read) = Question::read(&message) {
                prop_assert_eq!(read.write(), message.clone());
            }
            if let Ok(read) = Answer::read(&message) {
                prop_assert_eq!(read.bytes(), message.as_slice());
            }
        }

        #[test]
        fn an_answer_is_read_as_it_was_written(
            id: u32,
            error in 1..4096i32,
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let answer = Answer::refusal(id, error);
            prop_assert_eq!(Answer::read(answer.bytes()), Ok(answer.clone()));
            let mut message = answer.bytes().to_vec();
            let at = at.index(message.len());
            message[at] = byte;
            if let Ok(read) = Answer::read(&message) {
                prop_assert_eq!(read.bytes(), message.as_slice());
            }
        }
    }

    #[test]
    fn each_wrong_part_has_its_name() {
        let good = Question {
            id: 7,
            kind: Kind::Open,
            flags: 0,
            path: b"/a",
        };
        let with = |at: usize, byte: u8| {
            let mut message = good.write();
            message[at] = byte;
            Question::read(&message).expect_err("it is wrong")
        };
        assert_eq!(with(0, b'x'), Malformed::Magic);
        assert_eq!(with(4, 2), Malformed::Version);
        assert_eq!(with(6, 3), Malformed::Kind);
        assert_eq!(with(11, 1), Malformed::Flags);
        assert_eq!(with(16, 3), Malformed::Length);
        assert_eq!(with(20, b'a'), Malformed::Path);
        assert_eq!(with(21, 0), Malformed::Path);
        let long = vec![b'/'; MAX_PATH + 1];
        let long = Question {
            path: &long,
            ..good
        }
        .write();
        assert_eq!(Question::read(&long), Err(Malformed::Length));
    }
}
