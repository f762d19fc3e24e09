// SPDX-License-Identifier: MIT OR Apache-2.0
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
