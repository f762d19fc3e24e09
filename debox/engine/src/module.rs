// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that code is mapped from.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use object::elf::{FileHeader64, DT_NEEDED, DT_SONAME, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::LittleEndian;

/// A file that code was mapped from, held open so that it can be read when its path is gone.
#[derive(Debug)]
pub(crate) struct Module {
    pub path: PathBuf,
    /// Unique in this session.
    pub id: u32,
    file: File,
    is_static: OnceCell<bool>,
}

impl Module {
    pub fn new(path: PathBuf, id: u32, file: File) -> Module {
        Module {
            path,
            id,
            file,
            is_static: OnceCell::new(),
        }
    }

    /// The last component of the module's path.
    pub fn short_name(&self) -> Cow<'_, str> {
        let name = self.path.file_name();
        name.unwrap_or(self.path.as_os_str()).to_string_lossy()
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the program is linked statically and needs no libraries.
    pub fn is_static(&self) -> bool {
        *self
            .is_static
            .get_or_init(|| needs_no_libraries(&self.file).unwrap_or(false))
    }

    /// A path that opens exactly this file, whatever mount namespace it is in.
    pub fn open_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Whether a program needs no shared libraries.
fn needs_no_libraries(file: &File) -> Option<bool> {
    let cache = object::ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, &cache).ok()? {
        if segment.p_type(endian) == PT_INTERP {
            return Some(false);
        }
        // A position-independent static program has this segment, too, to relocate itself.
        let dynamic = segment.dynamic(endian, &cache).ok()?.unwrap_or(&[]);
        let mut tags = dynamic.iter().map(|entry| entry.d_tag(endian));
        if tags.any(|tag| tag == DT_NEEDED || tag == DT_SONAME) {
            return Some(false);
        }
    }
    Some(true)
}
