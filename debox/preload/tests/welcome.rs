//! How a process under the shim treats a server that is not a session, or not of this version: it runs as if there were
//! no server, and no descriptor stays open. Needs neither a session nor root.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    self, AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
};

const VERSION: u32 = 1;
const SLOTS: u32 = 4;
/// The size of the file of rows, as in the shim: a page, and a table of rows for each slot.
const ROWS: u64 = 4096 + 4 * (512 * (12 * 8 + 4 * 296) as u64).next_multiple_of(4096);

/// The secret of the session that a program under the shim looks for.
const SECRET: u64 = 0x00c0_ffee_0000_0005;

/// What a server answers.
#[derive(Clone, Default)]
struct Answer {
    message: Vec<u8>,
    fds: Vec<RawFd>,
    never: bool,
}

struct Server {
    path: PathBuf,
    listener: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `user`: the user as which it shows; 0 for the user who runs this.
    fn start(answer: Answer, user: u32) -> Server {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("debox-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let kind = SockType::SeqPacket;
        let listener = socket::socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None);
        let listener = listener.expect("a socket");
        let address = UnixAddr::new(&path).expect("a short path");
        socket::bind(listener.as_raw_fd(), &address).expect("a path of its own");
        let (ready, is_ready) = mpsc::channel();
        let own = listener.try_clone().expect("a descriptor");
        let thread = std::thread::spawn(move || {
            if user != 0 {
                // SAFETY: takes no memory; the raw call changes this thread's user only.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
                assert_eq!(changed, 0);
            }
            socket::listen(&own, socket::Backlog::MAXALLOWABLE).expect("a bound socket");
            ready.send(()).expect("the starter waits");
            let mut kept = Vec::new();
            while let Ok(fd) = socket::accept4(own.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
                // SAFETY: accept returned a new descriptor that nobody else owns.
                let client = unsafe { OwnedFd::from_raw_fd(fd) };
                if answer.never {
                    kept.push(client);
                    continue;
                }
                let rights = [ControlMessage::ScmRights(&answer.fds)];
                let rights = if answer.fds.is_empty() {
                    &[][..]
                } else {
                    &rights
                };
                let data = [IoSlice::new(&answer.message)];
                let flags = MsgFlags::MSG_NOSIGNAL;
                let _ = socket::sendmsg::<()>(client.as_raw_fd(), &data, rights, flags, None);
            }
        });
        is_ready.recv().expect("the server listens");
        Server {
            path,
            listener,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = socket::shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The shim in a file, which is removed when this is dropped.
struct Shim(PathBuf);

impl Shim {
    fn new() -> Shim {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("libdebox_preload-{number}.so");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        File::create(&path)
            .and_then(|mut file| file.write_all(debox_preload::LIBRARY))
            .expect("the build directory is writable");
        Shim(path)
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lists a process's own open descriptors and what it has mapped, under the shim.
fn run_with(server: &Server) -> String {
    let shim = Shim::new();
    let run = |program: &str, argument: &str, is_tapped: bool| {
        let mut command = Command::new(program);
        command.arg(argument);
        if is_tapped {
            // As if the session were under many filters: tests run in containers, too.
            let session = format!("1000:{SECRET:016x}:{}", server.path.display());
            command.env("LD_PRELOAD", &shim.0).env("DEBOX_TAP", session);
        }
        let output = command.output().expect("coreutils");
        assert!(output.status.success(), "{program}: {}", output.status);
        assert!(output.stderr.is_empty(), "{program}: {:?}", output.stderr);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (alone, tapped) = (
        run("ls", "/proc/self/fd", false),
        run("ls", "/proc/self/fd", true),
    );
    assert_eq!(tapped, alone, "descriptors were left open");
    run("cat", "/proc/self/maps", true)
}

fn memory_file(size: u64) -> File {
    // SAFETY: the name is a valid C string; the new descriptor is owned by nobody else.
    let file = unsafe {
        let fd = libc::memfd_create(c"debox-test-file".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len(size).expect("memory");
    file
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The welcome of a session.
fn welcome(version: u32, slots: u32) -> Vec<u8> {
    [words(&[version, slots]), SECRET.to_ne_bytes().to_vec()].concat()
}

/// The files of a session, but with plain files instead of its maps.
fn good_files() -> [File; 3] {
    let slots = u64::from(SLOTS) * 16384;
    [slots, 4096, ROWS].map(memory_file)
}

fn fds_of(files: &[File]) -> Vec<RawFd> {
    files.iter().map(|file| file.as_raw_fd()).collect()
}

#[test]
fn a_good_answer_is_taken() {
    let files = good_files();
    let answer = Answer {
        message: welcome(VERSION, SLOTS),
        fds: fds_of(&files),
        never: false,
    };
    let mapped = run_with(&Server::start(answer, 0));
    assert!(mapped.contains("debox-test-file"), "{mapped}");
}

#[track_caller]
fn refused(what: &str, message: &[u8], fds: &[RawFd]) {
    let answer = Answer {
        message: message.to_vec(),
        fds: fds.to_vec(),
        never: false,
    };
    let mapped = run_with(&Server::start(answer, 0));
    assert!(!mapped.contains("debox-test-file"), "{what}: {mapped}");
}

#[test]
fn malformed_answers_are_no_session() {
    let files = good_files();
    let fds = fds_of(&files);
    let good = welcome(VERSION, SLOTS);

    refused("nothing", &[], &[]);
    refused("no descriptors", &good, &[]);
    refused("short", &good[..15], &fds);
    refused("short, without descriptors", &good[..1], &[]);
    refused("without a secret", &good[..8], &fds);
    refused("long", &[&good[..], &[0; 4]].concat(), &fds);
    refused("next version", &welcome(VERSION + 1, SLOTS), &fds);
    refused("version 0", &welcome(0, SLOTS), &fds);
    refused("no slots", &welcome(VERSION, 0), &fds);
    refused("slots for ever", &welcome(VERSION, u32::MAX), &fds);
    refused("one slot too many", &welcome(VERSION, SLOTS + 1), &fds);
    for at in [8, 15] {
        let mut other = good.clone();
        other[at] ^= 1;
        refused("another secret", &other, &fds);
    }
    refused("one descriptor", &good, &fds[..1]);
    refused("two descriptors", &good, &fds[..2]);
    let many: Vec<RawFd> = fds.iter().copied().cycle().take(200).collect();
    refused("many descriptors", &good, &many);
    refused("many descriptors, short", &good[..3], &many);
    let null = File::open("/dev/null").expect("a device");
    refused("devices", &good, &[null.as_raw_fd(); 3]);
}

/// With any bytes and any number of descriptors, the program runs. (Which of them could be a session does not matter
/// here.)
#[test]
fn arbitrary_answers_do_no_harm() {
    let files = good_files();
    let fds = fds_of(&files);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..40 {
        let length = next() as usize % 24;
        let mut message: Vec<u8> = (0..length).map(|_| (next() % 3) as u8).collect();
        if next() % 2 == 0 {
            message = welcome(VERSION, next() as u32 >> (next() % 32));
        }
        let count = next() as usize % 6;
        let chosen: Vec<RawFd> = (0..count).map(|_| fds[next() as usize % 3]).collect();
        let answer = Answer {
            message,
            fds: chosen,
            never: false,
        };
        run_with(&Server::start(answer, 0));
    }
}

#[test]
fn a_server_that_never_answers_is_not_waited_for_for_ever() {
    let answer = Answer {
        never: true,
        ..Answer::default()
    };
    let server = Server::start(answer, 0);
    let begun = Instant::now();
    run_with(&server);
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "it gave up early"
    );
    assert!(begun.elapsed() < Duration::from_secs(40), "it waited long");
}

/// Another user's process may have taken the name of a session that has ended.
#[test]
fn another_users_server_is_no_session() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        debox_skipped::skipped(
            "another_users_server_is_no_session: it takes root to be another user",
        );
        return;
    }
    let files = good_files();
    let answer = Answer {
        message: welcome(VERSION, SLOTS),
        fds: fds_of(&files),
        never: false,
    };
    let mapped = run_with(&Server::start(answer, 1000));
    assert!(!mapped.contains("debox-test-file"), "{mapped}");
}

/// In a user namespace most users, root among them, show as the overflow user: a server that knows the secret
/// is the session.
#[test]
fn nobodys_server_is_a_session_if_it_knows_the_secret() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        debox_skipped::skipped("nobodys_server: it takes root to be another user");
        return;
    }
    let files = good_files();
    let mut answer = Answer {
        message: welcome(VERSION, SLOTS),
        fds: fds_of(&files),
        never: false,
    };
    let mapped = run_with(&Server::start(answer.clone(), 65534));
    assert!(mapped.contains("debox-test-file"), "{mapped}");
    answer.message[8] ^= 1;
    let mapped = run_with(&Server::start(answer, 65534));
    assert!(!mapped.contains("debox-test-file"), "{mapped}");
}

#[test]
fn an_address_that_is_none_is_no_session() {
    let files = good_files();
    let answer = Answer {
        message: welcome(VERSION, SLOTS),
        fds: fds_of(&files),
        never: false,
    };
    let server = Server::start(answer, 0);
    let path = server.path.display();
    let good = format!("1000:{SECRET:016x}:{path}");
    assert!(mapped_with(&good).contains("debox-test-file"));
    assert!(mapped_with(&good.replace("1000:", "1000+:")).contains("debox-test-file"));
    for text in [
        String::new(),
        ":::".to_string(),
        "1000".to_string(),
        format!(":{SECRET:016x}:{path}"),
        format!("1000:{SECRET:x}:{path}"),
        format!("1000:0{SECRET:016x}:{path}"),
        format!("1000:{SECRET:016x}"),
        format!("1000:{SECRET:016x}:"),
        format!("1000:{SECRET:016x}:relative"),
        format!("1000:{SECRET:016x}:/{}", "long".repeat(100)),
        format!("1000+{SECRET:016x}:{path}"),
        format!("{path}:1000"),
    ] {
        let mapped = mapped_with(&text);
        assert!(!mapped.contains("debox-test-file"), "{text}: {mapped}");
    }
}

/// What `cat` maps under the shim, with this session in its environment.
#[track_caller]
fn mapped_with(session: &str) -> String {
    let shim = Shim::new();
    let mut command = Command::new("cat");
    command.arg("/proc/self/maps");
    command.env("LD_PRELOAD", &shim.0).env("DEBOX_TAP", session);
    let output = command.output().expect("coreutils");
    assert!(output.status.success(), "{session}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
