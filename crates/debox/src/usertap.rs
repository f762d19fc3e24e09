//! The session's side of the user tap: tells processes where their slots are, keeps their clock,
//! and reads the rows that they count their calls in.
//!
//! The layouts are those of `include/debox_tap.h` and `crates/debox-preload/c/attach.h`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{
    self, sockopt, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr,
};
use nix::unistd::{lseek64, Whence};

use crate::clock::TapClock;
use crate::memory_file;
use crate::tables::{self, add, types};

const VERSION: u32 = 1;
/// `DEBOX_TAP_SEEN`.
pub(crate) const SEEN: &str = ":seen";
const PAGE: u64 = 4096;
const ROWS: u64 = 512;
const BUCKETS: usize = 296;

/// `struct debox_tap_row`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Row {
    calls: u64,
    errors: u64,
    restarts: u64,
    parts_ns: [u64; 6],
    faults: u64,
    max_ns: u64,
    reserved: u64,
    histogram: [u32; BUCKETS],
}

const ROW_SIZE: u64 = std::mem::size_of::<Row>() as u64;
pub(crate) const TABLE: u64 = (ROWS * ROW_SIZE).next_multiple_of(PAGE);
const _: () = assert!(ROW_SIZE == 12 * 8 + 4 * BUCKETS as u64);

/// The file of rows: a page with the clock, then a table for each slot. Sparse: only what is used
/// takes memory.
pub(crate) struct TapRows {
    pub(crate) file: File,
    slots: u32,
}

impl TapRows {
    pub(crate) fn create(slots: u32) -> Result<TapRows> {
        let length = PAGE + u64::from(slots) * TABLE;
        let file = memory_file::create(c"debox-tap-rows", length, memory_file::OWNER_ONLY)
            .context("cannot make the file of rows")?;
        // Every process that has it could cut it off, and whoever reads there would get SIGBUS.
        memory_file::seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
            .context("cannot seal the file of rows")?;
        Ok(TapRows { file, slots })
    }

    /// Adds all threads' rows to `sum`, by call number.
    pub fn add_to(&self, sum: &mut BTreeMap<u32, types::row>) -> Result<()> {
        let end = PAGE + u64::from(self.slots) * TABLE;
        let mut at = PAGE;
        // Reading a hole through a mapping would fill it: ask where data is, and read just that.
        while at < end {
            let Ok(data) = lseek64(&self.file, at as i64, Whence::SeekData) else {
                break;
            };
            let hole = lseek64(&self.file, data, Whence::SeekHole).unwrap_or(end as i64) as u64;
            let first = (data as u64).max(PAGE);
            self.add_range(first, hole, sum)?;
            at = hole.max(at + PAGE);
        }
        Ok(())
    }

    /// Adds the rows that begin in a range of the file.
    fn add_range(&self, from: u64, to: u64, sum: &mut BTreeMap<u32, types::row>) -> Result<()> {
        let mut table = (from - PAGE) / TABLE;
        loop {
            let start = PAGE + table * TABLE;
            if start >= to {
                return Ok(());
            }
            let first = from.saturating_sub(start).div_ceil(ROW_SIZE);
            for call in first..ROWS {
                let at = start + call * ROW_SIZE;
                if at >= to {
                    break;
                }
                let mut bytes = [0u8; ROW_SIZE as usize];
                self.file
                    .read_exact_at(&mut bytes, at)
                    .context("cannot read the tap's rows")?;
                let Some(row) = tables::read_value::<Row>(&bytes) else {
                    continue;
                };
                if row.calls > 0 {
                    let is_last = call == ROWS - 1;
                    let number = if is_last {
                        tables::NO_SUCH_CALL
                    } else {
                        call as u32
                    };
                    add_row(sum.entry(number).or_default(), &row);
                }
            }
            table += 1;
        }
    }
}

fn add_row(sum: &mut types::row, row: &Row) {
    add(&mut sum.calls, row.calls);
    add(&mut sum.errors, row.errors);
    add(&mut sum.restarts, row.restarts);
    add(&mut sum.faults_minor, row.faults);
    sum.max_ns = sum.max_ns.max(row.max_ns);
    for (sum, part) in sum.parts.iter_mut().zip(row.parts_ns) {
        add(sum, part);
    }
    for (sum, count) in sum.histogram.iter_mut().zip(row.histogram) {
        add(sum, u64::from(count));
    }
}

/// Answers processes that ask for their session.
pub(crate) struct TapServer {
    /// For the environment: the socket's name and how many seccomp filters the session is under.
    pub address: String,
    pub rows: TapRows,
    clock: TapClock,
    listener: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TapServer {
    /// `slots_fd` and `tids_fd` are the maps to pass on; `is_monitored` tells whether a process is
    /// one of the session's. `sees_calls`: it keeps what the shim calls to find it, too.
    pub fn start(
        slots: u32,
        slots_fd: RawFd,
        tids_fd: RawFd,
        sees_calls: bool,
        is_monitored: impl Fn(u32) -> bool + Send + 'static,
    ) -> Result<TapServer> {
        let rows = TapRows::create(slots)?;
        let clock = TapClock::start(&rows.file)?;
        let listener = socket::socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .context("cannot make the user tap's socket")?;
        let name = format!(
            "debox-tap-{}-{:x}",
            std::process::id(),
            clock.read_counter()
        );
        let seen = if sees_calls { SEEN } else { "" };
        let address = format!("{name}:{}{seen}", seccomp_filters());
        let name = UnixAddr::new_abstract(name.as_bytes())?;
        socket::bind(listener.as_raw_fd(), &name).context("cannot name the user tap's socket")?;
        socket::listen(&listener, socket::Backlog::new(1024)?)?;
        let listener = Arc::new(listener);

        let stop = Arc::new(AtomicBool::new(false));
        let fds = [slots_fd, tids_fd, rows.file.as_raw_fd()];
        let thread = std::thread::Builder::new()
            .name("debox-tap".to_string())
            .spawn({
                let (stop, listener) = (Arc::clone(&stop), Arc::clone(&listener));
                move || serve(&listener, slots, fds, &stop, is_monitored)
            })?;
        Ok(TapServer {
            address,
            rows,
            clock,
            listener,
            stop,
            thread: Some(thread),
        })
    }

    /// Keeps the processes' clock close to the kernel's.
    pub fn refresh_clock(&mut self) {
        self.clock.refresh();
    }
}

impl Drop for TapServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Whoever waits in accept gets an error now.
        let _ = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: &OwnedFd,
    slots: u32,
    fds: [RawFd; 3],
    stop: &AtomicBool,
    is_monitored: impl Fn(u32) -> bool,
) {
    while !stop.load(Ordering::Relaxed) {
        match socket::accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
            Ok(fd) => {
                // SAFETY: accept returned a new descriptor that nobody else owns.
                let client = unsafe { OwnedFd::from_raw_fd(fd) };
                let _ = welcome(&client, slots, fds, &is_monitored); // a client that left is no loss
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => {}
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Sends the maps, but only to processes of the session: the socket's name is no secret.
fn welcome(
    client: &OwnedFd,
    slots: u32,
    fds: [RawFd; 3],
    is_monitored: impl Fn(u32) -> bool,
) -> Result<()> {
    let peer = socket::getsockopt(client, sockopt::PeerCredentials)?;
    if !is_monitored(peer.pid() as u32) {
        return Ok(());
    }
    let message: Vec<u8> = [VERSION, slots]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    socket::sendmsg::<()>(
        client.as_raw_fd(),
        &[IoSlice::new(&message)],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// How many seccomp filters this process is under; 0 if the kernel does not tell.
fn seccomp_filters() -> u32 {
    filters_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn filters_in(status: &str) -> u32 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}
