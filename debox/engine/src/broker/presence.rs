//! Shows clients that the broker is there, without a system call on their side.
//!
//! It is a word in a page that every client maps and only the broker can write: a robust futex, held by
//! one of the broker's threads. However the broker ends, the kernel removes the thread's id from the word
//! (`exit_robust_list`, Documentation/locking/robust-futex-ABI.rst). It does so while it releases the
//! thread's memory, before it closes the files and with them the probes.
//!
//! The list by which the kernel finds the word is in the thread's own memory and refers to the page by an
//! offset: a `pthread_mutex_t` in the page would reveal its links, which are addresses of the broker.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::memory_file;
use crate::signals::Blocked;

/// The bits of the word with the holder's thread id; 0 without a holder (`FUTEX_TID_MASK`).
pub(crate) const HOLDER: u32 = 0x3fff_ffff;

/// The page's length.
pub(crate) const LENGTH: usize = 4096;

const WHAT: &str = "cannot create the page that shows clients whether the broker is there";

/// Runs a thread that holds the word until this is dropped.
pub struct Presence {
    file: File,
    /// Dropped to make the thread release the word.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Presence {
    pub fn begin() -> Result<Presence> {
        let file = memory_file::create(c"debox-broker", LENGTH as u64, memory_file::READ_BY_ALL)
            .context(WHAT)?;
        let page = Page::map(&file).context(WHAT)?;
        // This process can write the page through its existing mapping; a process that gets the descriptor
        // cannot.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;
        memory_file::seal(&file, seals).context(WHAT)?;
        let (stop, stopped) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let hold = move || {
            let _blocked = Blocked::all(); // signals are handled by the thread that serves
            let mut holds = Box::new(RobustList::default());
            let held = holds.take(page.word());
            let is_held = held.is_ok();
            let _ = tell.send(held);
            if is_held {
                let _ = stopped.recv();
                holds.let_go(page.word());
            }
        };
        let name = "debox-presence".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(hold);
        let thread = thread.context(WHAT)?;
        let held = told
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        held.context(WHAT)?;
        Ok(Presence {
            file,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A descriptor for one client; no other process has it.
    pub fn for_client(&self) -> io::Result<File> {
        memory_file::open_for_reading(self.file.as_fd())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The page, where the broker writes it.
struct Page(*mut u32);

// SAFETY: it is memory of which only one word is used, as an atomic.
unsafe impl Send for Page {}

impl Page {
    fn map(file: &File) -> io::Result<Page> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (none, fd) = (ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { libc::mmap(none, LENGTH, protection, libc::MAP_SHARED, fd, 0) };
        match base {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            base => Ok(Page(base.cast())),
        }
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped as long as this value lives.
        unsafe { AtomicU32::from_ptr(self.0) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value. Clients have their own mappings.
        unsafe { libc::munmap(self.0.cast(), LENGTH) };
    }
}

/// `struct robust_list_head` of the kernel and the one entry of its list.
#[derive(Default)]
#[repr(C)]
struct RobustList {
    first: usize,
    /// From an entry to its word.
    offset: isize,
    pending: usize,
    /// The entry: a pointer to the next one, which is the head.
    entry: usize,
}

/// The length of `struct robust_list_head`.
const HEAD: usize = 3 * std::mem::size_of::<usize>();

impl RobustList {
    /// Makes this the calling thread's list, replacing the C library's, and puts the thread's id into the
    /// word. The thread must not take a robust mutex after that. The list and the word must not move until
    /// the thread has released the word or has ended.
    fn take(&mut self, word: &AtomicU32) -> io::Result<()> {
        let entry = &raw const self.entry as usize;
        self.entry = ptr::from_ref(self) as usize;
        self.first = entry;
        self.offset = (word.as_ptr() as usize).wrapping_sub(entry) as isize;
        set_list(self)?;
        // SAFETY: gettid has no arguments.
        let tid = unsafe { libc::gettid() };
        word.store(tid as u32, Ordering::SeqCst);
        Ok(())
    }

    fn let_go(&mut self, word: &AtomicU32) {
        word.store(0, Ordering::SeqCst);
        // Otherwise the kernel would read the list when the thread ends, when its memory has been reused.
        let _ = set_list(ptr::null());
    }
}

fn set_list(list: *const RobustList) -> io::Result<()> {
    // SAFETY: the kernel keeps the address until the thread ends; the callers ensure that it stays valid.
    match unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "presence/tests.rs"]
mod tests;
