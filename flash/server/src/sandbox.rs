// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each thread may still do when it has started: which files it reaches (Landlock), and which system calls it can
//! make (seccomp). A client that takes over a loop by a bug gets no more than the loop itself needs.
//!
//! Threads have different tasks, so each has its own limits. A thread inherits those of the thread that starts it, so
//! only the first helper of a pool sets them, and what the main thread may not do no thread may.

mod calls;

use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use landlock::{
    path_beneath_rules, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, ABI,
};

use crate::sites::VirtualHost;
use crate::upstream::{Endpoint, Place};

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `inbox`: the only descriptor that it reads by `read`.
    Loop {
        inbox: RawFd,
    },
    Helper,
    /// Checks passwords.
    Password,
    /// The loop of the path server, with its inbox.
    Paths {
        inbox: RawFd,
    },
    /// Opens files for other processes, with the flags that these want.
    PathHelper,
    Log,
    /// Writes to the standard error stream.
    Messages,
    /// Waits for signals, loads certificates and changed configurations, and starts the others.
    Main,
}

/// Files that threads have to reach after the start. Nothing else can be opened.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Directories whose files are served.
    pub roots: Vec<PathBuf>,
    /// What is loaded again on SIGHUP, as certificates, keys and users. The directories are readable, as renewal puts new files
    /// in place of old ones.
    pub loaded: Vec<PathBuf>,
    /// Opened again on SIGHUP. New files can be made in its directory.
    pub log: Option<PathBuf>,
    /// Unix sockets: made when the configuration changes, removed in the end.
    pub sockets: Vec<PathBuf>,
    /// The main thread will read a changed configuration, with directories and certificates that are not known yet.
    pub may_change: bool,
    /// All other threads come from the main thread, so they have its limits, too.
    pub is_inherited: bool,
    pub upstreams: Reach,
}

/// Which upstreams loops connect to.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Of TCP. Addresses cannot be limited.
    pub ports: Vec<u16>,
    pub has_unix: bool,
    pub has_scripts: bool,
}

impl Reach {
    pub fn of(hosts: &[VirtualHost]) -> Reach {
        let mut reach = Reach::default();
        let locations = hosts.iter().flat_map(|host| &host.locations);
        let plans = locations.filter_map(|location| location.upstream.as_ref());
        for place in plans.flat_map(|plan| &plan.to) {
            match place {
                Place::Tcp { port, .. } => reach.ports.push(*port),
                Place::Unix(_) => reach.has_unix = true,
                Place::Script => reach.has_scripts = true,
            }
        }
        reach
    }

    /// A connection to an upstream of this kind can be used, if it is open.
    pub fn has_kind_of(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::Tcp(_) => !self.ports.is_empty(),
            Endpoint::Unix(_) => self.has_unix,
            Endpoint::Script => self.has_scripts,
        }
    }
}

/// A part of the sandbox: in force, in which form; or not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    On(String),
    Off(String),
}

/// What is in force in a thread, or in all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub landlock: Part,
    pub seccomp: Part,
}

impl Part {
    pub fn is_on(&self) -> bool {
        matches!(self, Part::On(_))
    }

    fn weaker(self, other: Part) -> Part {
        if self.is_on() {
            other
        } else {
            self
        }
    }
}

impl Status {
    /// Of no thread.
    pub fn off() -> Status {
        let off = || Part::Off("off (--no-sandbox)".to_string());
        Status {
            landlock: off(),
            seccomp: off(),
        }
    }

    /// What is in force in both.
    pub fn weaker(self, other: Status) -> Status {
        Status {
            landlock: self.landlock.weaker(other.landlock),
            seccomp: self.seccomp.weaker(other.seccomp),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |part: &Part| match part {
            Part::On(text) | Part::Off(text) => text.clone(),
        };
        write!(
            out,
            "Landlock: {}; seccomp: {}",
            text(&self.landlock),
            text(&self.seccomp)
        )
    }
}

/// Limits the calling thread, and those that it starts. There is no way back.
pub fn enter(role: Role, paths: &Paths) -> Status {
    // Whatever is executed later gets no rights by its file.
    let _ = rustix::thread::set_no_new_privs(true);
    Status {
        landlock: restrict_files(role, paths).unwrap_or_else(|error| Part::Off(error.to_string())),
        seccomp: calls::restrict(role, paths).unwrap_or_else(|error| {
            Part::Off(format!(
                "this kernel or container does not allow it: {error}"
            ))
        }),
    }
}

fn restrict_files(role: Role, paths: &Paths) -> Result<Part, RulesetError> {
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let none: BitFlags<AccessFs> = BitFlags::EMPTY;
    let (readable, writable) = match role {
        Role::Loop { .. } | Role::Helper | Role::Paths { .. } | Role::PathHelper => {
            (paths.roots.clone(), Vec::new())
        }
        Role::Password | Role::Messages => (Vec::new(), Vec::new()),
        Role::Log => (Vec::new(), log_places(paths.log.as_deref())),
        Role::Main => (main_reads(paths), log_places(paths.log.as_deref())),
    };
    let writes = match writable.is_empty() {
        true => none,
        false => AccessFs::WriteFile | AccessFs::MakeReg,
    };
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?;
    if role != Role::Main {
        // No connection is opened but those to upstreams, and no further port.
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let ports = match role {
        Role::Loop { .. } => paths.upstreams.ports.as_slice(),
        _ => &[],
    };
    let connects = |port: &u16| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp));
    let sockets: Vec<PathBuf> = match role {
        Role::Main => paths.sockets.iter().map(|path| parent(path)).collect(),
        _ => Vec::new(),
    };
    let makes = AccessFs::MakeSock | AccessFs::RemoveFile | reads;
    let created = ruleset
        .create()?
        .add_rules(ports.iter().map(connects))?
        .add_rules(path_beneath_rules(readable, reads))?
        .add_rules(path_beneath_rules(sockets, makes))?
        .add_rules(path_beneath_rules(writable, writes))?;
    let status = created.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotImplemented) => Part::Off(
            "this kernel has none (it takes Linux 5.13, and CONFIG_SECURITY_LANDLOCK)".to_string(),
        ),
        (RulesetStatus::NotEnforced, _) => Part::Off(
            "this kernel has it, but it is not turned on (boot parameter lsm=landlock,...)"
                .to_string(),
        ),
        (
            _,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            Part::On(format!("on (ABI {abi})"))
        }
        (_, _) => Part::On("on".to_string()),
    })
}

/// What the main thread reads, and those that come from it.
fn main_reads(paths: &Paths) -> Vec<PathBuf> {
    if paths.may_change {
        return vec![PathBuf::from("/")];
    }
    let loaded = paths.loaded.iter().flat_map(|path| directories(path));
    loaded.chain(paths.roots.iter().cloned()).collect()
}

/// The directory in which a file is named, and the one in which it is: certificates are often symbolic links.
fn directories(path: &Path) -> Vec<PathBuf> {
    let named = parent(path);
    let found = path.canonicalize().ok();
    let real = found.as_deref().map(parent);
    [Some(named), real].into_iter().flatten().collect()
}

/// Where the log is opened. It may be a terminal or a pipe, whose directory is not to be written.
fn log_places(log: Option<&Path>) -> Vec<PathBuf> {
    let Some(path) = log else {
        return Vec::new();
    };
    match path.metadata() {
        // What a pipe without a name leads to is always open to who has it.
        Ok(status) if !status.is_file() => path.canonicalize().into_iter().collect(),
        _ => directories(path),
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::fs::{self, File, OpenOptions};
    use std::io::{ErrorKind, IoSliceMut, Read};
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;

    use rustix::io::{Errno, ReadWriteFlags};

    use crate::files::{Lookup, Root};

    /// Runs in a thread of its own with the limits of a role.
    fn limited<T: Send>(role: Role, paths: &Paths, run: impl FnOnce(&Status) -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| run(&enter(role, paths)));
            thread.join().expect("no panic")
        })
    }

    struct Place {
        place: tempfile::TempDir,
        paths: Paths,
    }

    fn place() -> Place {
        let place = tempfile::tempdir().expect("a directory");
        for directory in ["root", "logs", "certs"] {
            fs::create_dir(place.path().join(directory)).expect("room");
        }
        for file in ["root/a", "secret", "certs/key"] {
            fs::write(place.path().join(file), "text").expect("room");
        }
        let paths = Paths {
            roots: vec![place.path().join("root")],
            loaded: vec![place.path().join("certs/key")],
            log: Some(place.path().join("logs/log")),
            ..Paths::default()
        };
        Place { place, paths }
    }

    #[test]
    fn a_loop_reads_files_without_waiting_and_does_nothing_else() {
        let Place { place, paths } = place();
        let inside = Root::open(&paths.roots[0]).expect("it is there");
        let outside = Root::open(place.path()).expect("it is there");
        let Lookup::Found(file) = inside.open_waiting(b"a") else {
            panic!("it is there");
        };
        outside.open_waiting(b"secret");
        let inbox = File::open("/dev/zero").expect("a device");
        let mut other = File::open("/dev/zero").expect("a device");
        let role = Role::Loop {
            inbox: inbox.as_raw_fd(),
        };
        let path = place.path().join("root/a");
        limited(role, &paths, |status| {
            assert!(status.seccomp.is_on(), "{status}");
            let denied = |done: std::io::Result<()>| {
                let error = done.expect_err("it is forbidden");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            };
            // What it is for.
            assert!(matches!(
                inside.open_cached(b"a"),
                Some(Lookup::Found(_)) | None
            ));
            let mut buffer = [0; 4];
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let nowait = rustix::io::preadv2(&file.fd, &mut parts, 0, ReadWriteFlags::NOWAIT);
            assert_ne!(nowait, Err(Errno::PERM));
            (&inbox).read_exact(&mut [0; 8]).expect("its inbox");
            // What would wait.
            let waiting = rustix::io::preadv2(&file.fd, &mut parts, 0, ReadWriteFlags::empty());
            assert_eq!(waiting, Err(Errno::PERM));
            denied(other.read(&mut [0; 1]).map(drop));
            denied(File::open(&path).map(drop));
            assert_eq!(rustix::fs::fsync(&file.fd), Err(Errno::PERM));
            // What it has no reason for.
            denied(TcpStream::connect("127.0.0.1:1").map(drop));
            denied(fs::remove_file(&path));
            denied(std::thread::Builder::new().spawn(|| {}).map(drop));
            let executable = unsafe_free_map();
            assert_eq!(executable, Err(Errno::PERM));
            if status.landlock.is_on() {
                assert!(matches!(
                    outside.open_cached(b"secret"),
                    Some(Lookup::Forbidden) | None
                ));
            }
        });
    }

    #[test]
    fn a_loop_connects_to_upstreams_and_to_nothing_else() {
        use rustix::net::{connect, ipproto, socket_with, AddressFamily, SocketFlags, SocketType};
        let Place { mut paths, .. } = place();
        let [known, other] = [0, 1].map(|_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            (listener.local_addr().expect("an address"), listener)
        });
        paths.upstreams.ports = vec![known.0.port()];
        let inbox = File::open("/dev/zero").expect("a device");
        let role = Role::Loop {
            inbox: inbox.as_raw_fd(),
        };
        // A loop could not read it.
        let has_tcp_rules = has_tcp_rules();
        limited(role, &paths, |status| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let tcp = || {
                let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
                socket_with(family, kind, flags, Some(ipproto::TCP)).expect("it is allowed")
            };
            let begun = connect(tcp(), &known.0);
            assert!(
                matches!(begun, Ok(()) | Err(Errno::INPROGRESS)),
                "{begun:?}"
            );
            if status.landlock.is_on() && has_tcp_rules {
                assert_eq!(connect(tcp(), &other.0), Err(Errno::ACCESS));
            }
            for (family, kind, flags) in [
                (AddressFamily::INET, SocketType::DGRAM, flags),
                (
                    AddressFamily::INET,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                ),
                (AddressFamily::UNIX, SocketType::STREAM, flags),
                (AddressFamily::NETLINK, SocketType::RAW, flags),
            ] {
                let refused = socket_with(family, kind, flags, None).map(drop);
                assert_eq!(refused, Err(Errno::PERM), "{family:?} {kind:?}");
            }
        });
    }

    /// Linux 6.7.
    fn has_tcp_rules() -> bool {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
        let mut numbers = release
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version >= (6, 7)
    }

    /// Memory that can be executed.
    fn unsafe_free_map() -> Result<(), Errno> {
        use nix::sys::mman::{mmap_anonymous, MapFlags, ProtFlags};
        let length = std::num::NonZeroUsize::new(4096).expect("not zero");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        // SAFETY: a new mapping, which nothing else uses.
        let mapped = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
        let mapped = mapped.map(drop);
        mapped.map_err(|error| Errno::from_raw_os_error(error as i32))
    }

    #[test]
    fn a_helper_reads_what_is_served_and_starts_helpers() {
        let Place { place, paths } = place();
        let inside = Root::open(&paths.roots[0]).expect("it is there");
        let outside = Root::open(place.path()).expect("it is there");
        let (path, secret) = (place.path().join("root/a"), place.path().join("secret"));
        limited(Role::Helper, &paths, |status| {
            assert!(status.seccomp.is_on(), "{status}");
            assert!(matches!(inside.open_waiting(b"a"), Lookup::Found(_)));
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| fs::read_to_string(&path).expect("it is served"));
                assert_eq!(thread.join().expect("no panic"), "text");
            });
            OpenOptions::new()
                .write(true)
                .open(&path)
                .expect_err("only for reading");
            fs::write(place.path().join("root/b"), "").expect_err("only for reading");
            TcpStream::connect("127.0.0.1:1").expect_err("no connections");
            if status.landlock.is_on() {
                assert!(matches!(outside.open_waiting(b"secret"), Lookup::Forbidden));
                File::open(&secret).expect_err("not served");
            }
        });
    }

    #[test]
    fn who_checks_passwords_opens_nothing() {
        let Place { place, paths } = place();
        let inside = Root::open(&paths.roots[0]).expect("it is there");
        limited(Role::Password, &paths, |status| {
            assert!(status.seccomp.is_on(), "{status}");
            assert!(matches!(inside.open_waiting(b"a"), Lookup::Forbidden));
            File::open(place.path().join("root/a")).expect_err("no files");
            File::open(place.path().join("certs/key")).expect_err("no files");
            TcpStream::connect("127.0.0.1:1").expect_err("no connections");
            std::thread::scope(|scope| {
                scope.spawn(|| {}).join().expect("a further thread");
            });
        });
    }

    #[test]
    fn the_log_is_written_and_nothing_beside_it() {
        let Place { place, paths } = place();
        limited(Role::Log, &paths, |status| {
            let log = paths.log.as_ref().expect("a log");
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(log)
                .expect("its log");
            if status.landlock.is_on() {
                File::open(log).expect_err("only for writing");
                File::open(place.path().join("root/a")).expect_err("not its file");
                File::create(place.path().join("root/b")).expect_err("not its place");
            }
            fs::remove_file(log).expect_err("it only writes");
        });
    }

    #[test]
    fn the_main_thread_reads_certificates() {
        let Place { place, paths } = place();
        let new = place.path().join("certs/new");
        fs::write(&new, "text").expect("room");
        limited(Role::Main, &paths, |status| {
            File::open(&new).expect("where certificates are");
            if status.landlock.is_on() {
                File::open(place.path().join("secret")).expect_err("no certificate");
                File::create(place.path().join("certs/b")).expect_err("only for reading");
            }
        });
    }

    /// As a changed configuration may need it.
    #[test]
    fn the_main_thread_reads_what_a_new_configuration_names() {
        let Place { place, paths } = place();
        let paths = Paths {
            may_change: true,
            is_inherited: true,
            ..paths
        };
        let others = Paths {
            roots: vec![place.path().join("certs")],
            log: Some(place.path().join("logs/other")),
            ..paths.clone()
        };
        limited(Role::Main, &paths, |status| {
            assert!(status.seccomp.is_on(), "{status}");
            File::open(place.path().join("secret")).expect("it may be named");
            if status.landlock.is_on() {
                File::create(place.path().join("certs/b")).expect_err("only for reading");
            }
            limited(Role::Log, &others, |_| {
                File::create(place.path().join("logs/other")).expect("beside the first log");
            });
            limited(Role::Helper, &others, |status| {
                File::open(place.path().join("certs/key")).expect("it is served now");
                if status.landlock.is_on() {
                    File::open(place.path().join("secret")).expect_err("not served");
                }
            });
        });
    }

    #[test]
    fn what_is_off_in_one_thread_is_off() {
        let part = |is_on| match is_on {
            true => Part::On("on".to_string()),
            false => Part::Off("off".to_string()),
        };
        for (one, other) in [(true, true), (true, false), (false, true), (false, false)] {
            assert_eq!(part(one).weaker(part(other)).is_on(), one && other);
        }
    }

    #[test]
    fn who_executes_a_program_is_killed() {
        let output = std::process::Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "--ignored", "sandbox::tests::executes_a_program"])
            .output()
            .expect("it can be executed");
        assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
    }

    #[test]
    #[ignore = "it ends the process; another test runs it"]
    fn executes_a_program() {
        let Place { paths, .. } = place();
        limited(Role::Helper, &paths, |_| {
            let path = CString::new("/bin/true").expect("a path");
            let _ = nix::unistd::execv(&path, &[&path]);
        });
    }
}
