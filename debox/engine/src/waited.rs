//! Reads from outside what a task that sleeps in a call for descriptors waits for: the files of `poll()`,
//! `select()` and `epoll_wait()`, and the ends of a socket.
//!
//! The probes name a wait when it ends. A wait that is still going on has no name yet. For a wait that began
//! before the monitoring, they cannot read the descriptors, which are in the program's memory.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use procfs::process::Process;

use crate::deadlock::tasks::{read_memory, Call, Task};
use crate::report::Resource;
use crate::resources::Resources;
use crate::tables::{self, types};

const NR_POLL: u32 = 7;
const NR_SELECT: u32 = 23;
const NR_EPOLL_WAIT: u32 = 232;
const NR_PSELECT6: u32 = 270;
const NR_PPOLL: u32 = 271;
const NR_EPOLL_PWAIT: u32 = 281;
const NR_EPOLL_PWAIT2: u32 = 441;

/// Calls whose first argument is the descriptor that they wait for, as in `resource_kind_of` of
/// debox/probe/record.h.
const FOR_ONE: [u32; 19] = [
    0, 1, 17, 18, 19, 20, 42, 43, 288, 44, 45, 46, 47, 72, 73, 74, 75, 299, 307,
];

/// The most descriptors that are examined, and the most that are named.
const MOST: usize = 1024;
const NAMED: usize = 4;

/// The descriptors that a task waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waited {
    pub pid: u32,
    pub tid: u32,
    pub call: u32,
    /// How often the thread had slept at that time.
    pub switches: u64,
    pub descriptors: Vec<i32>,
}

/// By thread: the call that it waits in, and the resource.
pub(crate) type Waits = HashMap<u32, (u32, Resource)>;

/// What these threads wait for.
pub(crate) fn waits_of(tids: impl IntoIterator<Item = u32>, names: &mut Resources) -> Waits {
    let waits = tids.into_iter().take(MOST).filter_map(|tid| {
        let waited = Waited::of(tid)?;
        Some((tid, (waited.call, waited.name(names)?)))
    });
    waits.collect()
}

/// What a thread waits for in a call, if the call is for descriptors and the probes have no better name.
pub(crate) fn of_thread<'a>(
    waits: &'a Waits,
    thread: &types::thread,
    seen: Option<&types::resource>,
) -> Option<&'a Resource> {
    let is_of_descriptors = seen.is_none_or(|seen| {
        matches!(
            seen.kind,
            tables::RESOURCE_NONE | tables::RESOURCE_FD | tables::RESOURCE_SEVERAL
        )
    });
    let call = thread.call & !tables::CALL_UNTAPPED;
    let (of_call, resource) = waits.get(&thread.tid)?;
    (is_of_descriptors && *of_call == call).then_some(resource)
}

/// Whether a call waits until one of several descriptors is ready.
pub(crate) fn is_poll(call: u32) -> bool {
    matches!(call, NR_POLL | NR_PPOLL | NR_SELECT | NR_PSELECT6)
}

fn is_epoll(call: u32) -> bool {
    matches!(call, NR_EPOLL_WAIT | NR_EPOLL_PWAIT | NR_EPOLL_PWAIT2)
}

/// Whether a call waits for descriptors at all.
pub(crate) fn is_for_descriptors(call: u32) -> bool {
    is_poll(call) || is_epoll(call) || FOR_ONE.contains(&call)
}

impl Waited {
    /// What the task waits for now. `None` if it is not asleep in such a call.
    pub fn of(tid: u32) -> Option<Waited> {
        let task = Task::read(tid)?;
        let call = Call::of(tid)?;
        let descriptors = match call.number {
            number if FOR_ONE.contains(&number) => vec![call.args[0] as i32],
            number if is_epoll(number) => watched(task.pid, call.args[0] as i32)?,
            number if is_poll(number) => {
                let read = read_memory(task.pid)?;
                polled(&call, read)?
            }
            _ => return None,
        };
        // The thread has slept all the time.
        let is_same = Call::of(tid) == Some(call)
            && Task::read(tid).is_some_and(|again| again.switches == task.switches);
        is_same.then_some(Waited {
            pid: task.pid,
            tid,
            call: call.number,
            switches: task.switches,
            descriptors,
        })
    }

    /// The descriptors in words. `None` if nothing is known of any of them.
    pub fn name(&self, names: &mut Resources) -> Option<Resource> {
        let mut resource = |fd: &i32| of_descriptor(self.pid, self.tid, *fd, names);
        match self.descriptors.as_slice() {
            [] => None,
            [one] => resource(one),
            several => {
                let named = several.iter().take(NAMED).filter_map(&mut resource);
                let named: Vec<String> = named.map(in_words).collect();
                Some(crate::resources::several(several.len() as u64, &named))
            }
        }
    }
}

fn in_words(resource: Resource) -> String {
    match resource.name {
        Some(name) => format!("{} {name}", resource.kind),
        None => resource.kind,
    }
}

/// The descriptors of a `poll()` or `select()`. `read` reads the process's memory.
fn polled(call: &Call, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Vec<i32>> {
    let args = &call.args;
    if matches!(call.number, NR_POLL | NR_PPOLL) {
        let mut bytes = vec![0; usize::try_from(args[1]).ok()?.min(MOST) * 8];
        if !read(args[0], &mut bytes) {
            return None;
        }
        let first = |entry: &[u8]| i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let descriptors = bytes.chunks_exact(8).map(first);
        return Some(descriptors.filter(|fd| *fd >= 0).collect());
    }
    let bits = usize::try_from(args[0]).ok()?.min(MOST);
    let mut all = vec![0u8; bits.div_ceil(64) * 8];
    for set in &args[1..4] {
        let mut bytes = vec![0; all.len()];
        if *set != 0 && !read(*set, &mut bytes) {
            return None;
        }
        all.iter_mut().zip(bytes).for_each(|(all, one)| *all |= one);
    }
    let is_in = |fd: &usize| all[fd / 8] & 1 << (fd % 8) != 0;
    Some((0..bits).filter(is_in).map(|fd| fd as i32).collect())
}

/// The descriptors that an epoll instance watches.
pub(crate) fn watched(pid: u32, instance: i32) -> Option<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{instance}")).ok()?;
    let targets = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let numbers = targets.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    Some(numbers.take(MOST).collect())
}

/// The resource behind a descriptor of a process.
fn of_descriptor(pid: u32, tid: u32, fd: i32, names: &mut Resources) -> Option<Resource> {
    let found = std::fs::metadata(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let resource = types::resource {
        kind: tables::RESOURCE_FD,
        what: found.mode() & libc::S_IFMT,
        device: libc::major(found.dev()) << 20 | libc::minor(found.dev()),
        id: found.ino(),
        ..types::resource::default()
    };
    let mut row = types::resource_row::default();
    if resource.what == libc::S_IFSOCK {
        read_ends(pid, found.ino(), &mut row);
    } else {
        names.learn(&types::resource_seen {
            tgid: pid,
            tid,
            fd,
            resource,
            ..types::resource_seen::default()
        });
    }
    Some(names.describe(&resource, 0, &row))
}

/// Reads both ends of a socket from the process's network namespace.
fn read_ends(pid: u32, inode: u64, row: &mut types::resource_row) -> Option<()> {
    let process = Process::new(pid as i32).ok()?;
    let tcp = [process.tcp(), process.tcp6()];
    let mut tcp = tcp.into_iter().flatten().flatten();
    if let Some(found) = tcp.find(|entry| entry.inode == inode) {
        set_ends(
            row,
            libc::SOCK_STREAM,
            found.local_address,
            found.remote_address,
        );
        return Some(());
    }
    let udp = [process.udp(), process.udp6()];
    let mut udp = udp.into_iter().flatten().flatten();
    if let Some(found) = udp.find(|entry| entry.inode == inode) {
        set_ends(
            row,
            libc::SOCK_DGRAM,
            found.local_address,
            found.remote_address,
        );
        return Some(());
    }
    let unix = process.unix().ok()?;
    let found = unix.into_iter().find(|entry| entry.inode == inode)?;
    row.ends.family = libc::AF_UNIX as u16;
    row.ends.r#type = found.socket_type;
    let path = found.path.unwrap_or_default();
    let is_abstract = path.as_os_str().as_bytes().first() == Some(&b'@');
    for (at, byte) in path.as_os_str().as_bytes().iter().enumerate() {
        let to = row.name.get_mut(at)?;
        *to = if at == 0 && is_abstract {
            0
        } else {
            *byte as i8
        };
    }
    Some(())
}

fn set_ends(row: &mut types::resource_row, kind: i32, local: SocketAddr, peer: SocketAddr) {
    let ends = &mut row.ends;
    ends.r#type = kind as u16;
    (ends.local_port, ends.peer_port) = (local.port(), peer.port());
    ends.family = match local.is_ipv4() {
        true => libc::AF_INET as u16,
        false => libc::AF_INET6 as u16,
    };
    for (bytes, address) in [(&mut ends.local, local.ip()), (&mut ends.peer, peer.ip())] {
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => *bytes = address.octets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// What a thread that runs `wait` waits for.
    fn waited(wait: impl FnOnce() + Send + 'static) -> Waited {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            // SAFETY: the call has no arguments.
            sender.send(unsafe { libc::gettid() } as u32).unwrap();
            wait();
        });
        let tid = receiver.recv().unwrap();
        let mut found = (0..1000).filter_map(|_| {
            thread::sleep(Duration::from_millis(10));
            Waited::of(tid).filter(|found| found.call != libc::SYS_futex as u32)
        });
        found.next().expect("it waits")
    }

    fn poll_entry(fd: i32) -> libc::pollfd {
        libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }
    }

    #[test]
    fn descriptors_of_poll_and_select_are_read() {
        let (one, other) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        let descriptors = [one.as_raw_fd(), other.as_raw_fd()];
        let mut entries = [
            poll_entry(descriptors[0]),
            poll_entry(-1),
            poll_entry(descriptors[1]),
        ];
        let found = waited(move || {
            // SAFETY: the entries are this thread's own.
            unsafe { libc::poll(entries.as_mut_ptr(), 3, -1) };
        });
        assert_eq!(found.descriptors, descriptors);
        let name = found.name(&mut Resources::default()).unwrap();
        let port = one.local_addr().unwrap().port();
        assert_eq!(name.kind, "descriptors");
        let text = name.name.unwrap();
        assert!(
            text.starts_with(&format!("(2 of them: socket udp 127.0.0.1:{port}, ")),
            "{text}"
        );
        let found = waited(move || {
            // SAFETY: the sets are this thread's own, and the descriptors are small.
            unsafe {
                let mut set: libc::fd_set = std::mem::zeroed();
                libc::FD_SET(descriptors[1], &mut set);
                let nothing = std::ptr::null_mut();
                libc::select(
                    descriptors[1] + 1,
                    &mut set,
                    nothing,
                    nothing,
                    std::ptr::null_mut(),
                );
            }
        });
        assert_eq!(found.descriptors, [descriptors[1]]);
    }

    #[test]
    fn what_epoll_watches_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = TcpStream::connect(address).unwrap();
        let (descriptor, local) = (own.as_raw_fd(), own.local_addr().unwrap());
        let found = waited(move || {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: 0,
            };
            // SAFETY: the descriptors are open, and the event is this thread's own.
            unsafe {
                let instance = libc::epoll_create1(0);
                libc::epoll_ctl(instance, libc::EPOLL_CTL_ADD, descriptor, &mut event);
                libc::epoll_wait(instance, &mut event, 1, -1);
            }
        });
        assert_eq!(found.descriptors, [descriptor]);
        let name = found.name(&mut Resources::default()).unwrap();
        assert_eq!(name.kind, "socket");
        assert_eq!(name.name, Some(format!("tcp {local} to {address}")));
    }

    #[test]
    fn a_read_has_one() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let descriptor = reader.as_raw_fd();
        let found = waited(move || {
            let _ = reader.read(&mut [0]);
        });
        assert_eq!(found.descriptors, [descriptor]);
        let name = found.name(&mut Resources::default()).unwrap();
        assert_eq!(name.kind, "pipe");
        assert!(name.name.unwrap().starts_with("pipe:["));
        drop(writer);
    }
}
