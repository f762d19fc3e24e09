//! The process that serves the image: a FUSE file system with two files, `image` and `parameters`.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::sys::mman::{mlockall, MlockAllFlags};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_nanosleep, ClockId, ClockNanosleepFlags};

use crate::model::{Parameters, DEPTH_MAX};

pub const IMAGE: &str = "image";
pub const PARAMETERS: &str = "parameters";

const IMAGE_NODE: u64 = 2;
const PARAMETERS_NODE: u64 = 3;

/// Requests that the kernel sends without waiting for answers. More than any depth, so that requests
/// queue in this process and not in the kernel.
const IN_FLIGHT: u16 = 256;

const FOR_EVER: Duration = Duration::from_secs(1 << 30);

struct Waiting {
    arrived_ns: u64,
    offset: u64,
    size: u32,
    reply: ReplyData,
}

struct Disk {
    image: File,
    size: u64,
    parameters: Mutex<Parameters>,
    queue: Mutex<VecDeque<Waiting>>,
    arrived: Condvar,
    /// Threads whose number is not below the depth wait here until it changes.
    deeper: Condvar,
    served: AtomicU64,
    bytes: AtomicU64,
    /// Where the last request ended.
    head: AtomicU64,
}

/// Serves until the file system is unmounted.
pub fn serve(image: &Path, mount_point: &Path, parameters: Parameters) -> Result<()> {
    parameters.check()?;
    let file =
        File::open(image).with_context(|| format!("cannot open the image {}", image.display()))?;
    let size = file.metadata()?.len();
    let disk = Arc::new(Disk {
        image: file,
        size,
        parameters: Mutex::new(parameters),
        queue: Mutex::new(VecDeque::new()),
        arrived: Condvar::new(),
        deeper: Condvar::new(),
        served: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        head: AtomicU64::new(u64::MAX),
    });
    be_punctual();
    for number in 0..DEPTH_MAX {
        let disk = Arc::clone(&disk);
        std::thread::Builder::new()
            .name(format!("disk-{number}"))
            .stack_size(128 << 10)
            .spawn(move || disk.work(number))
            .context("cannot start a thread")?;
    }
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName("latlab".into()),
        MountOption::Subtype("slowdisk".into()),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    fuser::mount2(Files(disk), mount_point, &config)
        .with_context(|| format!("cannot serve {}", mount_point.display()))
}

/// Keeps scheduling and paging delays of this process out of the disk's times.
fn be_punctual() {
    // All of this is optional: if the machine refuses it, the disk is less punctual, which `latlab
    // disk check` shows.
    let _ = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE);
    // SAFETY: numbers only.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
    // With autogroups, a nice value only counts within its session's group.
    let _ = std::fs::write("/proc/self/autogroup", "-20");
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| now.as_nanos() as u64)
}

fn sleep_until(deadline_ns: u64) {
    let deadline = TimeSpec::from_duration(Duration::from_nanos(deadline_ns));
    let at = ClockNanosleepFlags::TIMER_ABSTIME;
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, at, &deadline) == Err(nix::Error::EINTR) {}
}

impl Disk {
    /// Serves requests, one after the other.
    fn work(&self, number: u32) {
        // SAFETY: numbers only. The timer slack belongs to the thread; a new thread inherits it, but
        // set it explicitly.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut free_ns = 0;
        let mut bytes = Vec::new();
        loop {
            let (parameters, waiting) = self.take(number);
            let size = u64::from(waiting.size).min(self.size.saturating_sub(waiting.offset));
            let end = waiting.offset + size;
            let is_sequential = self.head.swap(end, Ordering::Relaxed) == waiting.offset;
            // Counted from when the request could be served, not from when this thread woke up, so
            // that its lateness does not make the disk slower.
            let begin_ns = waiting.arrived_ns.max(free_ns);
            let deadline_ns = begin_ns + parameters.service_ns(size as u32, is_sequential);
            bytes.resize(size as usize, 0);
            let read = self.image.read_exact_at(&mut bytes, waiting.offset);
            if deadline_ns > now_ns() {
                sleep_until(deadline_ns);
            }
            free_ns = deadline_ns;
            self.served.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(size, Ordering::Relaxed);
            match read {
                Ok(()) => waiting.reply.data(&bytes),
                Err(error) => waiting
                    .reply
                    .error(Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))),
            }
        }
    }

    /// Waits for the next request. Only threads whose number is below the depth take requests.
    fn take(&self, number: u32) -> (Parameters, Waiting) {
        let mut queue = lock(&self.queue);
        loop {
            let parameters = *lock(&self.parameters);
            let wanted = if number < parameters.depth {
                if let Some(waiting) = queue.pop_front() {
                    return (parameters, waiting);
                }
                &self.arrived
            } else {
                &self.deeper
            };
            queue = wanted.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn described(&self) -> String {
        let waiting = lock(&self.queue).len();
        let described = serde_json::json!({
            "parameters": *lock(&self.parameters),
            "served": self.served.load(Ordering::Relaxed),
            "bytes": self.bytes.load(Ordering::Relaxed),
            "waiting": waiting,
        });
        format!("{described:#}\n")
    }

    fn attributes(&self, node: u64) -> Option<FileAttr> {
        let (kind, perm, size) = match node {
            1 => (FileType::Directory, 0o700, 0),
            IMAGE_NODE => (FileType::RegularFile, 0o400, self.size),
            PARAMETERS_NODE => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: INodeNo(node),
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

struct Files(Arc<Disk>);

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it, the loop device's reads come one at a time, regardless of the depth.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| std::io::Error::other("this kernel has no asynchronous direct I/O"))?;
        let _ = config.set_max_background(IN_FLIGHT);
        let _ = config.set_congestion_threshold(IN_FLIGHT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let node = match name.to_str() {
            Some(IMAGE) if parent == INodeNo::ROOT => IMAGE_NODE,
            Some(PARAMETERS) if parent == INodeNo::ROOT => PARAMETERS_NODE,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.0.attributes(node) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, fuser::Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attributes(node.0) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Shells truncate a file before they write to it.
    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.0.attributes(node.0) {
            Some(attributes) if node.0 == PARAMETERS_NODE => reply.attr(&FOR_EVER, &attributes),
            _ => reply.error(Errno::EROFS),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if node.0 == PARAMETERS_NODE {
            let text = self.0.described();
            let from = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(text.len());
            let to = from.saturating_add(size as usize).min(text.len());
            return reply.data(&text.as_bytes()[from..to]);
        }
        lock(&self.0.queue).push_back(Waiting {
            arrived_ns: now_ns(),
            offset,
            size,
            reply,
        });
        self.0.arrived.notify_one();
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if node.0 != PARAMETERS_NODE {
            return reply.error(Errno::EROFS);
        }
        match serde_json::from_slice::<Parameters>(data) {
            Ok(parameters) if parameters.check().is_ok() => {
                // Under the queue's lock, so that a thread that has just checked the parameters does
                // not miss the notification.
                let queue = lock(&self.0.queue);
                *lock(&self.0.parameters) = parameters;
                drop(queue);
                self.0.arrived.notify_all();
                self.0.deeper.notify_all();
                reply.written(data.len() as u32);
            }
            _ => reply.error(Errno::EINVAL),
        }
    }
}
