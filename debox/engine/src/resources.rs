//! Names for the resources that sleeps waited on.
//!
//! The probes identify files by device and inode, and words by their address. Paths and symbols are
//! looked up here while the process is alive; a path is used only if it leads to a file with the
//! same device and inode.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::report::Resource;
use crate::tables::{self, types};

mod device;
mod directories;
mod futex_variables;
mod variables;

use device::device;
use futex_variables::FutexVariables;
use variables::KernelVariables;

/// File types, as in `what` of `struct resource`.
const FILE_TYPE_FIFO: u32 = 0o010000;
const FILE_TYPE_CHARACTERS: u32 = 0o020000;
const FILE_TYPE_DIRECTORY: u32 = 0o040000;
const FILE_TYPE_BLOCKS: u32 = 0o060000;
const FILE_TYPE_REGULAR: u32 = 0o100000;
const FILE_TYPE_SOCKET: u32 = 0o140000;

const AT_FDCWD: i32 = -100;

/// Limit on the names that are kept, so that a session's memory is bounded.
const MAX_FILES: usize = 50_000;

#[derive(Default)]
pub(crate) struct Resources {
    /// By device (the kernel's number) and inode.
    files: HashMap<(u32, u64), String>,
    futex_variables: FutexVariables,
    variables: KernelVariables,
}

impl Resources {
    /// Looks a resource up in the process that was seen to wait on it.
    pub fn learn(&mut self, seen: &types::resource_seen) {
        let resource = &seen.resource;
        if resource.kind == tables::RESOURCE_FUTEX {
            self.futex_variables.learn(seen.tgid, resource.id);
            return;
        }
        let id = (resource.device, resource.id);
        if self.files.contains_key(&id) || self.files.len() >= MAX_FILES {
            return;
        }
        let link = if seen.fd == AT_FDCWD {
            format!("/proc/{}/cwd", seen.tid)
        } else {
            format!("/proc/{}/fd/{}", seen.tid, seen.fd)
        };
        if let Some(path) = path_of(&PathBuf::from(link), id) {
            self.files.insert(id, path);
        }
    }

    /// Looks for the path of a directory in the process that was seen to wait for its lock.
    pub fn learn_directory(&mut self, seen: &types::directory_seen) {
        let id = (seen.resource.device, seen.resource.id);
        if self.files.contains_key(&id) || self.files.len() >= MAX_FILES {
            return;
        }
        if let Some(path) = directories::find(seen) {
            self.files.insert(id, path);
        }
    }

    /// The variable that a word of a process is in, or its address.
    pub fn word(&mut self, tgid: u32, address: u64) -> String {
        self.futex_variables.learn(tgid, address);
        self.futex_variables.name(tgid, address)
    }

    /// Describes a resource in words, for the report.
    pub fn describe(
        &self,
        resource: &types::resource,
        lock_flags: u32,
        row: &types::resource_row,
    ) -> Resource {
        match resource.kind {
            tables::RESOURCE_FD => self.file(resource, row),
            tables::RESOURCE_FUTEX => Resource {
                kind: "futex".to_string(),
                name: (resource.id != 0)
                    .then(|| self.futex_variables.name(resource.tgid, resource.id)),
            },
            tables::RESOURCE_SEVERAL => several(resource.id, &[]),
            tables::RESOURCE_TIMER => of_kind("timer"),
            tables::RESOURCE_CHILD => Resource {
                kind: "child".to_string(),
                name: child(resource.id as i32),
            },
            tables::RESOURCE_DISK => Resource {
                kind: "disk".to_string(),
                name: Some(disk(resource.device)),
            },
            tables::RESOURCE_LOCK => Resource {
                kind: lock_kind(lock_flags).to_string(),
                name: self.lock(resource, row),
            },
            _ => of_kind("unknown"),
        }
    }

    fn file(&self, resource: &types::resource, row: &types::resource_row) -> Resource {
        let kind = match resource.what {
            FILE_TYPE_FIFO => "pipe",
            FILE_TYPE_CHARACTERS => "character device",
            FILE_TYPE_DIRECTORY => "directory",
            FILE_TYPE_BLOCKS => "block device",
            FILE_TYPE_SOCKET => "socket",
            _ => "file",
        };
        if resource.device == 0 && resource.id == 0 {
            return of_kind(kind); // one of more descriptors than were distinguished
        }
        if kind == "socket" {
            return Resource {
                kind: kind.to_string(),
                name: socket(row),
            };
        }
        let path = self.path(resource, row);
        // Since 6.16 files without a name of their own are regular ones inside the kernel.
        let own_kind = path
            .as_deref()
            .and_then(|path| path.strip_prefix("anon_inode:["))
            .and_then(|name| name.strip_suffix(']'));
        match own_kind {
            Some("eventpoll") => of_kind("epoll"),
            Some(kind) => of_kind(kind),
            None => Resource {
                kind: kind.to_string(),
                name: path,
            },
        }
    }

    fn lock(&self, resource: &types::resource, row: &types::resource_row) -> Option<String> {
        let of_file = |what: &str| {
            let path = self.path(resource, row)?;
            Some(format!("{what} of {path}"))
        };
        match resource.what {
            1 => of_file("inode lock"),
            2 => Some(format!("mmap lock of process {}", resource.tgid)),
            3 => Some(format!("mount lock of device {}", device(resource.device))),
            4 => Some(format!("rename lock of device {}", device(resource.device))),
            5 => of_file("position lock"),
            6 => of_file("pipe lock"),
            7 => of_file("page cache lock"),
            8 => of_file("lock on the mappings"),
            9 => of_file("lock"),
            _ => self.variables.name(resource.id),
        }
    }

    /// The path if it was found, otherwise what the probe saw of it.
    fn path(&self, resource: &types::resource, row: &types::resource_row) -> Option<String> {
        if resource.device == 0 && resource.id == 0 {
            return None;
        }
        if let Some(path) = self.files.get(&(resource.device, resource.id)) {
            return Some(path.clone());
        }
        let name = tables::comm(&row.name);
        let inode = resource.id;
        let is_pipe = resource.what == FILE_TYPE_FIFO && name.is_empty();
        Some(match (is_pipe, name.is_empty()) {
            (true, _) => format!("pipe:[{inode}]"),
            (_, true) => format!("device {}, inode {inode}", device(resource.device)),
            _ if resource.what == FILE_TYPE_REGULAR && name.starts_with('[') => {
                format!("anon_inode:{name}")
            }
            _ => format!(
                ".../{name} (device {}, inode {inode})",
                device(resource.device)
            ),
        })
    }
}

fn of_kind(kind: &str) -> Resource {
    Resource {
        kind: kind.to_string(),
        name: None,
    }
}

/// One of `count` descriptors (0: unknown how many), of which these are known.
pub(crate) fn several(count: u64, known: &[String]) -> Resource {
    let name = match (count, known.len() as u64) {
        (0, _) => None,
        (_, 0) => Some(format!("({count} of them)")),
        (_, named) => {
            let more = match count.saturating_sub(named) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            Some(format!("({count} of them: {}{more})", known.join(", ")))
        }
    };
    Resource {
        kind: "descriptors".to_string(),
        name,
    }
}

/// What the link leads to, if that is the file with this device and inode.
fn path_of(link: &PathBuf, (device, inode): (u32, u64)) -> Option<String> {
    let found = std::fs::metadata(link).ok()?;
    let found_device = libc::major(found.dev()) << 20 | libc::minor(found.dev());
    if found_device != device || found.ino() != inode {
        return None;
    }
    let path = std::fs::read_link(link).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// A block device's own name, where it has one.
fn disk(number: u32) -> String {
    let number = device(number);
    match std::fs::read_link(format!("/sys/dev/block/{number}")) {
        Ok(link) => link
            .file_name()
            .map_or(number, |name| name.to_string_lossy().into_owned()),
        Err(_) => number,
    }
}

fn lock_kind(flags: u32) -> &'static str {
    let is = |flag: u32| flags & flag != 0;
    if is(tables::LOCK_MUTEX) {
        "mutex"
    } else if is(tables::LOCK_PERCPU) {
        "percpu-rwsem"
    } else if is(tables::LOCK_RT) {
        "rtmutex"
    } else if is(tables::LOCK_SEMAPHORE) {
        "semaphore"
    } else if is(tables::LOCK_READ | tables::LOCK_WRITE) {
        "rwsem"
    } else {
        "lock"
    }
}

/// The child that the first argument of `wait4` selects.
fn child(pid: i32) -> Option<String> {
    Some(match pid {
        -1 => "any child".to_string(),
        0 => "any child of its process group".to_string(),
        group if group < 0 => format!("any child of process group {}", group.unsigned_abs()),
        pid => format!("process {pid}"),
    })
}

/// Both ends of a socket, as far as they exist.
fn socket(row: &types::resource_row) -> Option<String> {
    let ends = &row.ends;
    let protocol = match i32::from(ends.r#type) {
        libc::SOCK_STREAM => "tcp",
        libc::SOCK_DGRAM => "udp",
        _ => "ip",
    };
    match i32::from(ends.family) {
        libc::AF_UNIX => {
            let mut text = match unix_address(&row.name) {
                Some(address) => format!("unix {address}"),
                None => "unix".to_string(),
            };
            if ends.peer_tgid != 0 {
                text.push_str(&format!(", peer process {}", ends.peer_tgid));
                let name = tables::comm(&ends.peer_comm);
                if !name.is_empty() {
                    text.push_str(&format!(" ({name})"));
                }
            }
            Some(text)
        }
        family @ (libc::AF_INET | libc::AF_INET6) => {
            let address = |bytes: &[u8; 16], port| SocketAddr::new(ip(family, bytes), port);
            let local = address(&ends.local, ends.local_port);
            if ends.peer_port == 0 {
                return Some(format!("{protocol} {local}"));
            }
            let peer = address(&ends.peer, ends.peer_port);
            Some(format!("{protocol} {local} to {peer}"))
        }
        0 => None,
        family => Some(format!("address family {family}")),
    }
}

fn ip(family: i32, bytes: &[u8; 16]) -> IpAddr {
    if family == libc::AF_INET {
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
    } else {
        Ipv6Addr::from(*bytes).to_canonical()
    }
}

/// A path, or `@name` of the abstract namespace.
fn unix_address(name: &[i8]) -> Option<String> {
    match name {
        [0, 0, ..] => None,
        [0, rest @ ..] => Some(format!("@{}", tables::comm(rest))),
        path => Some(tables::comm(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_not_believed() {
        let link = PathBuf::from("/proc/self/cwd");
        let found = std::fs::metadata(&link).unwrap();
        let device = libc::major(found.dev()) << 20 | libc::minor(found.dev());
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            path_of(&link, (device, found.ino())).as_deref(),
            here.to_str()
        );
        assert_eq!(path_of(&link, (device, found.ino() + 1)), None);
        assert_eq!(path_of(&link, (device + 1, found.ino())), None);
    }

    #[test]
    fn sockets_have_both_ends() {
        let mut row = types::resource_row::default();
        row.ends.family = libc::AF_INET as u16;
        row.ends.r#type = libc::SOCK_STREAM as u16;
        row.ends.local[..4].copy_from_slice(&[127, 0, 0, 1]);
        row.ends.local_port = 80;
        assert_eq!(socket(&row).as_deref(), Some("tcp 127.0.0.1:80"));
        row.ends.peer[..4].copy_from_slice(&[10, 0, 0, 7]);
        row.ends.peer_port = 4321;
        assert_eq!(
            socket(&row).as_deref(),
            Some("tcp 127.0.0.1:80 to 10.0.0.7:4321")
        );
    }

    #[test]
    fn unix_sockets_have_an_address_or_a_peer() {
        let mut row = types::resource_row::default();
        row.ends.family = libc::AF_UNIX as u16;
        row.ends.peer_tgid = 12;
        assert_eq!(socket(&row).as_deref(), Some("unix, peer process 12"));
        row.name[1] = b'x' as i8;
        assert_eq!(socket(&row).as_deref(), Some("unix @x, peer process 12"));
        row.name[0] = b'/' as i8;
        assert_eq!(socket(&row).as_deref(), Some("unix /x, peer process 12"));
        row.ends.peer_comm[0] = b'a' as i8;
        assert_eq!(
            socket(&row).as_deref(),
            Some("unix /x, peer process 12 (a)")
        );
    }

    #[test]
    fn several_descriptors_are_counted() {
        let names = [
            "socket udp 127.0.0.1:53".to_string(),
            "pipe pipe:[7]".to_string(),
        ];
        let text = |count, known| several(count, known).name;
        assert_eq!(text(0, &names[..0]), None);
        assert_eq!(text(3, &names[..0]).as_deref(), Some("(3 of them)"));
        assert_eq!(
            text(2, &names).as_deref(),
            Some("(2 of them: socket udp 127.0.0.1:53, pipe pipe:[7])")
        );
        assert_eq!(
            text(9, &names).as_deref(),
            Some("(9 of them: socket udp 127.0.0.1:53, pipe pipe:[7] and 7 more)")
        );
    }

    #[test]
    fn children_are_named_as_the_call_did() {
        assert_eq!(child(-1).as_deref(), Some("any child"));
        assert_eq!(child(-7).as_deref(), Some("any child of process group 7"));
        assert_eq!(child(7).as_deref(), Some("process 7"));
    }
}
