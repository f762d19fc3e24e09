// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that starts scripts: small and with one thread, so a fork costs little and copies no lock that somebody
//! holds. It begins before the server has threads and limits. A second process does nothing but start it again if it dies.

use std::ffi::{CString, OsStr};
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use nix::sys::signal::{killpg, sigprocmask, SigHandler, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{chdir, dup2_stdin, dup2_stdout, execve, fork, setsid, ForkResult, Pid};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;
use rustix::net::{
    recvmsg, socketpair, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SocketFlags, SocketType,
};
use rustix::process::{set_parent_process_death_signal, Signal as DeathSignal};

use super::scripts::{Scripts, Starter, ENDED, KILLED, LATE};
use crate::http::response;
use crate::user::Identity;

mod forked;

pub use forked::forking;

/// Bytes of an order: variables are as large as the head of a request.
const MAX_ORDER: usize = 256 << 10;
/// Between the request to end and the end of a script that nobody waits for.
const MERCY: Duration = Duration::from_secs(3);
/// Before the host is started again.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the host. `most`: scripts at the same time; `user`: whose rights they have.
///
/// # Errors
///
/// The process has threads already, or there can be no other process.
pub fn start(most: usize, user: Option<&Identity>, is_sandboxed: bool) -> Result<Scripts> {
    let threads = std::fs::read_dir("/proc/self/task").context("cannot count threads")?;
    ensure!(
        threads.count() == 1,
        "scripts (cgi) need a server that starts before its process has other threads"
    );
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (control, theirs) = pair.context("no socket for scripts")?;
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() }.context("no process for scripts")? {
        ForkResult::Parent { .. } => Ok(Scripts {
            starter: Starter::Host(control),
            most,
        }),
        ForkResult::Child => {
            drop(control);
            let done = supervise(&theirs, most, user, is_sandboxed);
            if let Err(error) = &done {
                kit_console::say_error("flash", &format!("no scripts: {error:#}"));
            }
            exit(done.is_err())
        }
    }
}

/// Without what the copied process would do at its end.
fn exit(has_failed: bool) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(i32::from(has_failed)) }
}

fn supervise(
    control: &OwnedFd,
    most: usize,
    user: Option<&Identity>,
    is_sandboxed: bool,
) -> Result<()> {
    if let Some(user) = user {
        user.assume()?;
    }
    if is_sandboxed {
        rustix::thread::set_no_new_privs(true)?;
    }
    let _ = rustix::thread::set_name(c"flash-scripts");
    // Who waits for the end of the server's output should not wait for this process.
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dies_with_parent()?;
    loop {
        // SAFETY: there is one thread, so nobody holds a lock in the new process.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let done = dies_with_parent().and_then(|()| serve(Some(control), most, Vec::new()));
                exit(done.is_err())
            }
            ForkResult::Parent { child } => match waitpid(child, None)? {
                // The server has ended.
                WaitStatus::Exited(_, 0) => return Ok(()),
                _ => std::thread::sleep(PAUSE),
            },
        }
    }
}

fn dies_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(DeathSignal::KILL))?;
    Ok(())
}

/// A script that runs.
struct Running {
    /// Also the number of its group.
    pid: Pid,
    life: OwnedFd,
    deadline: Instant,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// Nobody wants its answer. It has been asked to end.
    Abandoned,
    Killed,
}

struct Order {
    time: Duration,
    root: PathBuf,
    /// The location's path.
    location: Vec<u8>,
    path: Vec<u8>,
    variables: Vec<Vec<u8>>,
    input: OwnedFd,
    output: OwnedFd,
    life: OwnedFd,
}

/// Without `control`: until the scripts that run have ended.
fn serve(control: Option<&OwnedFd>, most: usize, mut running: Vec<Running>) -> Result<()> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    ends.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&ends, flags)?;
    while control.is_some() || !running.is_empty() {
        let (has_order, gone) = wait(control, &signals, &running)?;
        while let Ok(Some(_)) = signals.read_signal() {}
        let now = Instant::now();
        for (script, is_gone) in running.iter_mut().zip(gone) {
            look_at(script, is_gone, now);
        }
        reap(&mut running);
        let Some(control) = control.filter(|_| has_order) else {
            continue;
        };
        let mut bytes = vec![0; MAX_ORDER];
        match take_order(control, &mut bytes) {
            Ok(None) => break,
            Ok(Some(order)) if running.len() >= most => refuse(order.output, 503),
            Ok(Some(order)) => running.extend(begin(order)),
            Err(_) => {}
        }
    }
    for script in &running {
        let _ = killpg(script.pid, Signal::SIGKILL);
    }
    Ok(())
}

/// Until there is something to do: an order, an end, a script that nobody waits for, or one whose time is over.
fn wait(
    control: Option<&OwnedFd>,
    signals: &SignalFd,
    running: &[Running],
) -> Result<(bool, Vec<bool>)> {
    let mut ready = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    // Nothing is ever sent over it, so it can only be closed. Then it is always ready: once is enough.
    let is_running = |script: &&Running| script.stage == Stage::Runs;
    let lives = running.iter().filter(is_running);
    ready.extend(lives.map(|script| PollFd::new(&script.life, PollFlags::IN)));
    ready.extend(control.map(|control| PollFd::new(control, PollFlags::IN)));
    let waits = running
        .iter()
        .filter(|script| script.stage != Stage::Killed);
    let next = waits.map(|script| script.deadline).min();
    let timeout = next.map(|next| {
        let left = next.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    match poll(&mut ready, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("cannot wait for orders"),
    }
    let last = ready.last().filter(|_| control.is_some());
    let has_order = last.is_some_and(|control| !control.revents().is_empty());
    let mut lives = ready[1..].iter();
    let mut is_gone = |script: &Running| {
        is_running(&script) && lives.next().is_some_and(|life| !life.revents().is_empty())
    };
    let gone = running.iter().map(&mut is_gone).collect();
    Ok((has_order, gone))
}

/// Ends it if it has no time left, or no reader.
fn look_at(script: &mut Running, is_gone: bool, now: Instant) {
    match script.stage {
        Stage::Runs if is_gone => {
            let _ = killpg(script.pid, Signal::SIGTERM);
            script.stage = Stage::Abandoned;
            script.deadline = now + MERCY;
        }
        Stage::Runs if script.deadline <= now => {
            let _ = rustix::io::write(&script.life, &[LATE]);
            let _ = killpg(script.pid, Signal::SIGKILL);
            script.stage = Stage::Killed;
        }
        Stage::Abandoned if script.deadline <= now => {
            let _ = killpg(script.pid, Signal::SIGKILL);
            script.stage = Stage::Killed;
        }
        _ => {}
    }
}

/// Takes the ends of scripts, so that none stays a zombie, and passes them on.
fn reap(running: &mut Vec<Running>) {
    loop {
        let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, _)) => (pid, ENDED),
            Ok(WaitStatus::Signaled(pid, ..)) => (pid, KILLED),
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => continue,
        };
        if let Some(at) = running.iter().position(|script| script.pid == pid) {
            let script = running.swap_remove(at);
            let _ = rustix::io::write(&script.life, &[how]);
        }
    }
}

/// `None`: the server has ended.
fn take_order(control: &OwnedFd, bytes: &mut [u8]) -> Result<Option<Order>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        control,
        &mut [IoSliceMut::new(bytes)],
        &mut ancillary,
        flags,
    )?;
    let mut passed = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            passed.extend(files);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let ends = <[OwnedFd; 3]>::try_from(passed);
    let ends = ends.map_err(|_| anyhow::anyhow!("an order without descriptors"))?;
    Order::read(&bytes[..received.bytes], ends).map(Some)
}

impl Order {
    fn read(bytes: &[u8], [input, output, life]: [OwnedFd; 3]) -> Result<Order> {
        let (time, rest) = bytes
            .split_first_chunk::<4>()
            .context("an order without a time")?;
        let mut parts = rest.split(|byte| *byte == 0).map(<[u8]>::to_vec);
        let mut next = || parts.next().context("an order that is cut off");
        let (root, location, path) = (next()?, next()?, next()?);
        Ok(Order {
            time: Duration::from_millis(u64::from(u32::from_le_bytes(*time))),
            root: PathBuf::from(OsStr::from_bytes(&root)),
            location,
            path,
            variables: parts.filter(|part| !part.is_empty()).collect(),
            input,
            output,
            life,
        })
    }
}

fn begin(order: Order) -> Option<Running> {
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => Some(Running {
            pid: child,
            life: order.life,
            deadline: Instant::now() + order.time,
            stage: Stage::Runs,
        }),
        Ok(ForkResult::Child) => {
            let status = become_script(&order);
            refuse(order.output, status);
            exit(false)
        }
        Err(_) => {
            refuse(order.output, 503);
            None
        }
    }
}

/// Answers in place of a script.
fn refuse(output: OwnedFd, status: u16) {
    let reason = response::reason(status);
    let page = response::error_page(status);
    let text = format!(
        "Status: {status} {reason}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    );
    // It fits into an empty pipe.
    let _ = std::fs::File::from(output).write_all(text.as_bytes());
}

/// Returns only if there is no script: the status for that.
fn become_script(order: &Order) -> u16 {
    match prepare(order) {
        Ok(()) => {}
        Err(_) => return 500,
    }
    let (script, name, path_info) = match find(order) {
        Ok(found) => found,
        Err(status) => return status,
    };
    let root = order.root.as_os_str().as_bytes();
    let below = &script.as_os_str().as_bytes()[root.len().min(script.as_os_str().len())..];
    let own = [
        (b"SCRIPT_NAME=".as_slice(), name.as_slice()),
        (b"PATH_INFO=", path_info.as_slice()),
        (b"DOCUMENT_URI=", &[name.as_slice(), &path_info].concat()),
        (b"SCRIPT_FILENAME=", &[root, below].concat()),
        (b"DOCUMENT_ROOT=", root),
        (
            b"PATH=",
            &std::env::var_os("PATH")
                .unwrap_or("/usr/bin:/bin".into())
                .into_encoded_bytes(),
        ),
    ];
    let is_own = |variable: &&Vec<u8>| own.iter().any(|(name, _)| variable.starts_with(name));
    let others = order
        .variables
        .iter()
        .filter(|variable| !is_own(variable))
        .cloned();
    let mut all: Vec<Vec<u8>> = own
        .iter()
        .map(|(name, value)| [*name, *value].concat())
        .collect();
    if !path_info.is_empty() {
        all.push([b"PATH_TRANSLATED=", root, &path_info].concat());
    }
    all.extend(others);
    let variables: Vec<CString> = all.into_iter().flat_map(CString::new).collect();
    let Ok(path) = CString::new(script.as_os_str().as_bytes()) else {
        return 404;
    };
    if let Some(directory) = script.parent() {
        let _ = chdir(directory);
    }
    match execve(&path, &[&path], &variables) {
        Err(nix::errno::Errno::EACCES) => 403,
        _ => 500,
    }
}

/// Makes the process a script's: with its own group, streams and signals.
fn prepare(order: &Order) -> Result<()> {
    setsid()?;
    dies_with_parent()?;
    for file in [&order.input, &order.output] {
        let flags = fcntl_getfl(file)?;
        fcntl_setfl(file, flags - OFlags::NONBLOCK)?;
    }
    dup2_stdin(&order.input)?;
    dup2_stdout(&order.output)?;
    // SAFETY: the default is no function of this program.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// The first file on the path: its place, its name in URLs, and what of the path is behind it.
fn find(order: &Order) -> Result<(PathBuf, Vec<u8>, Vec<u8>), u16> {
    let mut place = order.root.clone();
    let mut name = order.location.clone();
    let mut rest = order.path.as_slice();
    while let Some(after) = rest.strip_prefix(b"/") {
        let end = after
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(after.len());
        let (segment, behind) = after.split_at(end);
        if segment.is_empty() || segment.starts_with(b".") {
            return Err(404);
        }
        place.push(OsStr::from_bytes(segment));
        name.extend_from_slice(&[b"/", segment].concat());
        rest = behind;
        match place.metadata() {
            Ok(status) if status.is_file() => return Ok((place, name, rest.to_vec())),
            Ok(status) if status.is_dir() => {}
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(403),
            _ => return Err(404),
        }
    }
    Err(404)
}
