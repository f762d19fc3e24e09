// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapped memory, as machine words.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

mod chains;
mod doubles;
mod strided;

pub use chains::{Chains, Link};

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    begin: NonNull<u64>,
    bytes: usize,
}

/// A part of a mapping; words are accessed one by one, so the compiler cannot leave any out, nor join them.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    begin: *mut u64,
    words: usize,
    _mapping: std::marker::PhantomData<&'a Mapping>,
}

/// Words that a loop accesses without a test between them.
const UNROLLED: usize = 16;

impl Mapping {
    fn map(bytes: usize, flags: libc::c_int, file: Option<&File>) -> io::Result<Mapping> {
        Mapping::map_for(libc::PROT_READ | libc::PROT_WRITE, bytes, flags, file)
    }

    fn map_for(
        access: libc::c_int,
        bytes: usize,
        flags: libc::c_int,
        file: Option<&File>,
    ) -> io::Result<Mapping> {
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: the kernel chooses an address at which nothing is.
        let begin = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, descriptor, 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { begin, bytes })
    }

    /// Anonymous memory of this process, without pages yet.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)
    }

    /// Anonymous memory that children share.
    pub fn shared(bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)
    }

    /// Anonymous memory, every page of which has been written.
    pub fn filled(bytes: usize) -> io::Result<Mapping> {
        let mapping = Mapping::anonymous(bytes)?;
        mapping.all().write(1);
        Ok(mapping)
    }

    pub fn of_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_SHARED, Some(file))
    }

    /// A private mapping of a file, for reading: a write to it ends the process.
    pub fn view_of_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::map_for(libc::PROT_READ, bytes, libc::MAP_PRIVATE, Some(file))
    }

    /// A private mapping of a file: writing copies a page.
    pub fn copy_of_file(file: &File, bytes: usize) -> io::Result<Mapping> {
        Mapping::map(bytes, libc::MAP_PRIVATE, Some(file))
    }

    pub fn all(&self) -> Chunk<'_> {
        self.chunk(0, self.bytes)
    }

    /// # Panics
    ///
    /// The chunk does not lie within the mapping.
    pub fn chunk(&self, from: usize, bytes: usize) -> Chunk<'_> {
        assert!(from.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        Chunk {
            // SAFETY: it lies within the mapping.
            begin: unsafe { self.begin.as_ptr().add(from / 8) },
            words: bytes / 8,
            _mapping: std::marker::PhantomData,
        }
    }

    /// Without huge pages, so that each page has a fault of its own.
    pub fn in_small_pages(&self) {
        self.advise(libc::MADV_NOHUGEPAGE);
    }

    /// Gives the pages back; the next access makes new ones.
    pub fn give_back(&self) {
        self.advise(libc::MADV_DONTNEED);
    }

    fn advise(&self, advice: libc::c_int) {
        // A kernel without huge pages refuses advice on them, which changes nothing.
        // SAFETY: it is this mapping, and its content is not relied on.
        unsafe { libc::madvise(self.begin.as_ptr().cast(), self.bytes, advice) };
    }

    pub fn protect(&self, is_writable: bool) -> io::Result<()> {
        let access = match is_writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        // SAFETY: it is this mapping; what is not writable is written by volatile access only.
        match unsafe { libc::mprotect(self.begin.as_ptr().cast(), self.bytes, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn address(&self) -> *mut u64 {
        self.begin.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and no chunk of it is left.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

impl Chunk<'_> {
    pub fn bytes(&self) -> usize {
        self.words * 8
    }

    /// The sum of all words.
    #[inline(never)]
    pub fn read(&self) -> u64 {
        let mut sums = [0u64; 4];
        let mut at = 0;
        while at + UNROLLED <= self.words {
            for offset in 0..UNROLLED {
                // SAFETY: the word lies within the chunk.
                let word = unsafe { self.begin.add(at + offset).read_volatile() };
                sums[offset % 4] = sums[offset % 4].wrapping_add(word);
            }
            at += UNROLLED;
        }
        while at < self.words {
            // SAFETY: as above.
            sums[0] = sums[0].wrapping_add(unsafe { self.begin.add(at).read_volatile() });
            at += 1;
        }
        sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
    }

    #[inline(never)]
    pub fn write(&self, value: u64) {
        let mut at = 0;
        while at + UNROLLED <= self.words {
            for offset in 0..UNROLLED {
                // SAFETY: the word lies within the chunk.
                unsafe { self.begin.add(at + offset).write_volatile(value) };
            }
            at += UNROLLED;
        }
        while at < self.words {
            // SAFETY: as above.
            unsafe { self.begin.add(at).write_volatile(value) };
            at += 1;
        }
    }

    /// Word by word, as far as both go.
    #[inline(never)]
    pub fn copy_from(&self, other: &Chunk<'_>) {
        let words = self.words.min(other.words);
        let mut at = 0;
        while at + UNROLLED <= words {
            for offset in 0..UNROLLED {
                // SAFETY: both words lie within their chunks.
                unsafe {
                    let word = other.begin.add(at + offset).read_volatile();
                    self.begin.add(at + offset).write_volatile(word);
                }
            }
            at += UNROLLED;
        }
        while at < words {
            // SAFETY: as above.
            unsafe {
                self.begin
                    .add(at)
                    .write_volatile(other.begin.add(at).read_volatile())
            };
            at += 1;
        }
    }

    /// Reads from a file into the chunk; the number of bytes.
    pub fn fill(&self, file: &File, offset: u64) -> io::Result<usize> {
        let (begin, bytes) = (self.begin.cast(), self.bytes());
        // SAFETY: the chunk is that long.
        let read = unsafe { libc::pread(file.as_raw_fd(), begin, bytes, offset as libc::off_t) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// By the C library's `memmove`, as far as both go.
    #[inline(never)]
    pub fn copy_by_library(&self, other: &Chunk<'_>) {
        let bytes = self.bytes().min(other.bytes());
        // SAFETY: both chunks are that long, and memmove allows them to overlap.
        unsafe { libc::memmove(self.begin.cast(), other.begin.cast(), bytes) };
        // Otherwise the compiler may leave out all calls but the last, as the next one overwrites what this one has written.
        black_box(self.begin);
    }

    /// By the C library's `memset`.
    #[inline(never)]
    pub fn clear_by_library(&self) {
        // SAFETY: the chunk is that long.
        unsafe { libc::memset(self.begin.cast(), 0, self.bytes()) };
        // As above.
        black_box(self.begin);
    }

    /// Writes the first word of each page of `page` bytes.
    pub fn touch(&self, page: usize, value: u64) {
        for at in (0..self.words).step_by((page / 8).max(1)) {
            // SAFETY: the word lies within the chunk.
            unsafe { self.begin.add(at).write_volatile(value) };
        }
    }

    /// The sum of the first words of each page of `page` bytes.
    pub fn sample(&self, page: usize) -> u64 {
        let words = (0..self.words).step_by((page / 8).max(1));
        // SAFETY: the word lies within the chunk.
        words.fold(0, |sum: u64, at| {
            sum.wrapping_add(unsafe { self.begin.add(at).read_volatile() })
        })
    }

    /// The first word of each of two cache lines.
    ///
    /// # Panics
    ///
    /// The chunk is too short.
    pub fn two_atomics(&self) -> (&AtomicU32, &AtomicU32) {
        const LINE_WORDS: usize = 16;
        assert!(self.words > LINE_WORDS);
        // SAFETY: both lie within the chunk and are aligned; they are accessed as atomics alone.
        unsafe {
            (
                AtomicU32::from_ptr(self.begin.cast()),
                AtomicU32::from_ptr(self.begin.add(LINE_WORDS).cast()),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_written_and_copied() {
        let from = Mapping::filled(4096 + 24).expect("memory");
        let to = Mapping::anonymous(4096 + 24).expect("memory");
        assert_eq!(from.all().read(), 515);
        from.chunk(514 * 8, 8).write(3);
        to.all().copy_from(&from.all());
        assert_eq!(to.all().read(), 517);
        to.all().clear_by_library();
        assert_eq!(to.all().read(), 0);
        to.all().copy_by_library(&from.all());
        assert_eq!(to.all().read(), 517);
        to.all().touch(4096, 9);
        assert_eq!(to.all().sample(4096), 18);
        to.give_back();
        assert_eq!(to.all().read(), 0);
    }
}
