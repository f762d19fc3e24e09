//! The broker as a user without privilege sees it: the same checks as with probes of the process's own, and each threat
//! of SECURITY.md. Loads probes and changes users, so it needs root.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Users that own nothing on this machine.
const USER: u32 = 65534;
const OTHER: u32 = 65533;

/// No check takes longer than this unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The checks measure time, and some use up what a user may have, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A directory that any user can reach, with the library, the programs and the broker's socket.
struct Place {
    directory: PathBuf,
    alone: Option<MutexGuard<'static, ()>>,
}

impl Place {
    fn new() -> Place {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new()
            .prefix("debox-broker-")
            .tempdir()
            .unwrap()
            .keep();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let library = common::library_directory().join("libdebox.so");
        fs::copy(library, directory.join(common::NAME)).unwrap();
        Place {
            directory,
            alone: Some(alone),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("broker.sock")
    }

    /// Compiles a program of `tests/programs`.
    fn program(&self, name: &str) -> PathBuf {
        common::linked(name, &self.directory)
    }

    /// Makes a set-user-id copy of a program: it runs with the rights of another user than its caller.
    fn set_user_id(&self, program: &Path) -> PathBuf {
        let copy = self.directory.join("set-user-id");
        fs::copy(program, &copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(OTHER), None).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        copy
    }

    fn broker(&self) -> Broker {
        self.broker_with(&[], None)
    }

    /// `descriptors`: how many the broker may have open.
    fn broker_with(&self, options: &[&str], descriptors: Option<u64>) -> Broker {
        let own = std::env::current_exe().unwrap();
        let debox = own.parent().unwrap().join("../debox");
        assert!(
            debox.exists(),
            "debox is not built: cargo build -p debox-cli"
        );
        let mut command = Command::new(debox);
        command
            .arg("broker")
            .arg("--socket")
            .arg(self.socket())
            .args(options)
            .stderr(Stdio::piped());
        if let Some(most) = descriptors {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            // SAFETY: setrlimit is async-signal-safe and only reads `limit`.
            unsafe {
                command.pre_exec(move || {
                    libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                    Ok(())
                })
            };
        }
        let mut child = command.spawn().expect("debox runs");
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "the broker says: {line}");
        Broker {
            child,
            said: Some(said),
        }
    }

    fn command(&self, uid: u32, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("DEBOX_BROKER", self.socket())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if uid != 0 {
            command.uid(uid).gid(uid);
            // SAFETY: setgroups with no groups only makes a call.
            unsafe {
                command.pre_exec(|| {
                    libc::setgroups(0, std::ptr::null());
                    Ok(())
                })
            };
        }
        command
    }

    fn start(&self, uid: u32, program: &Path, arguments: &[&str]) -> Started {
        let child = self
            .command(uid, program, arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the program runs");
        Started(Some(child))
    }

    fn run(&self, uid: u32, program: &Path, arguments: &[&str]) -> Output {
        let child = self.command(uid, program, arguments).spawn().unwrap();
        let mut timer = Timer::start(child.id());
        let output = child.wait_with_output().unwrap();
        timer.stop();
        output
    }

    #[track_caller]
    fn check(&self, uid: u32, program: &Path, arguments: &[&str]) {
        succeeded(arguments, &self.run(uid, program, arguments));
    }
}

/// A process that ends with the test, also if the test fails.
struct Started(Option<Child>);

impl Started {
    fn wait_with_output(mut self) -> std::io::Result<Output> {
        self.0.take().expect("it was started").wait_with_output()
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it was started")
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it was started")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Ends a process that takes too long.
struct Timer {
    done: std::sync::mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Timer {
    fn start(pid: u32) -> Timer {
        let (done, waits) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            if waits.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: the process is our own and not waited for yet.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
        });
        Timer {
            done,
            thread: Some(thread),
        }
    }

    fn stop(&mut self) {
        let _ = self.done.send(());
        let _ = self.thread.take().unwrap().join();
    }
}

struct Broker {
    child: Child,
    /// Its output after the line that says it listens.
    said: Option<BufReader<ChildStderr>>,
}

impl Broker {
    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .expect("the broker lives")
            .count()
    }

    /// Kills it, which leaves it no time to clean up.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // SAFETY: the process is our own and not waited for yet, or gone.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let status = self.child.wait().unwrap();
        if !std::thread::panicking() {
            use std::os::unix::process::ExitStatusExt;
            let was_killed = status.signal() == Some(libc::SIGKILL);
            assert!(status.success() || was_killed, "the broker: {status}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(what: &[&str], ran: &Output) {
    assert!(
        ran.status.success(),
        "{what:?}: {}\n{}{}",
        ran.status,
        text(&ran.stdout),
        text(&ran.stderr)
    );
}

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The checks of the library that do not depend on who loads the probes, each in a process of its own. There is a test
/// for each program: where a session takes long to begin, all programs would take too long for one test.
macro_rules! the_same_through_the_broker {
    ($($test:ident: $program:literal, $checks:literal;)*) => {
        $(
            #[test]
            fn $test() {
                the_same_through_the_broker($program, $checks);
            }
        )*
    };
}

the_same_through_the_broker! {
    records_are_the_same_through_the_broker:
        "records", "sleep values history hidden loads pause limits futex";
    threads_are_the_same_through_the_broker:
        "life", "other_threads fork clone daemon sessions crowd";
    handlers_may_look_through_the_broker: "life", "signals";
    the_classic_interface_is_the_same_through_the_broker: "classic", "results buffers null warm";
    the_user_tap_is_the_same_through_the_broker:
        "tap", "sleep reads wrapped handlers jumps preemption own sessions clock results unknown";
    scopes_are_the_same_through_the_broker:
        "scopes",
        "counts sleeps faults preemption threads fork nested counted_faults whole interrupts tap";
}

fn the_same_through_the_broker(name: &str, checks: &str) {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program(name);
    for check in checks.split(' ') {
        // They measure time, on a machine that may be busy or hide switches.
        let ran = (0..3).map(|_| {
            // Not faster than one user may connect.
            std::thread::sleep(Duration::from_millis(100));
            place.run(USER, &program, &[check])
        });
        let mut ran = ran.skip_while(|ran| !ran.status.success()).peekable();
        if ran.peek().is_none() {
            place.check(USER, &program, &[check]);
        }
    }
}

#[test]
fn a_client_sees_no_addresses_and_its_own_tasks_only() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    place.check(USER, &program, &["addresses"]);
    place.check(USER, &program, &["own_waker"]);

    let mut reader = place.start(USER, &program, &["others_waker"]);
    let mut line = String::new();
    let mut said = BufReader::new(reader.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    std::thread::sleep(Duration::from_millis(50));
    reader.stdin.take().unwrap().write_all(b"x").unwrap();
    succeeded(&["others_waker"], &reader.wait_with_output().unwrap());
}

#[test]
fn numbers_are_those_of_the_clients_pid_namespace() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    let inside = place
        .command(
            0,
            Path::new("unshare"),
            &["--pid", "--fork", "--mount-proc", "setpriv"],
        )
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .arg("own_waker")
        .output()
        .unwrap();
    succeeded(&["own_waker"], &inside);
}

#[test]
fn others_processes_are_not_enrolled() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    place.check(USER, &program, &["language"]);
    place.check(USER, &program, &["proxy"]);
}

#[test]
fn a_process_number_that_is_used_again_is_another_process() {
    let place = Place::new();
    let _broker = place.broker();
    place.check(0, &place.program("brokered"), &["reused"]);
}

#[test]
fn programs_with_other_rights_are_not_seen() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    let other = place.set_user_id(&program);
    // The exit statuses show whether the child was still monitored after it executed the program.
    let plain = place.run(USER, &program, &["exec", program.to_str().unwrap()]);
    assert_eq!(plain.status.code(), Some(11), "{}", text(&plain.stderr));
    let set = place.run(USER, &program, &["exec", other.to_str().unwrap()]);
    assert_eq!(set.status.code(), Some(10), "{}", text(&set.stderr));
    place.check(USER, &other, &["refused"]);
    place.check(USER, &program, &["undumpable"]);
}

#[test]
fn nonsense_ends_its_connection_and_nothing_else() {
    let place = Place::new();
    let broker = place.broker();
    let program = place.program("brokered");
    let before = broker.descriptors();
    place.check(USER, &program, &["nonsense"]);
    eventually("descriptors stay open", || broker.descriptors() <= before);
    place.check(USER, &program, &["addresses"]);
}

#[test]
fn a_scribbling_client_harms_itself_only() {
    let place = Place::new();
    let broker = place.broker();
    let program = place.program("brokered");
    for tap in ["kernel", "user"] {
        let mut scribbler = place.start(USER, &program, &["scribble", tap]);
        let mut line = String::new();
        let mut said = BufReader::new(scribbler.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "scribbling\n");
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            place.check(OTHER, &place.directory.join("brokered"), &["addresses"]);
            place.check(USER, &place.directory.join("brokered"), &["own_waker"]);
        }
        assert!(scribbler.try_wait().unwrap().is_none(), "it has ended");
        scribbler.kill().unwrap();
        scribbler.wait().unwrap();
    }
    let program = place.program("records");
    place.check(USER, &program, &["values"]);
    assert!(broker.descriptors() > 0);
}

/// What can be done with a descriptor beyond its content: attributes, modes, leases, locks, seals, freezing.
#[test]
fn what_clients_are_given_allows_nothing_else() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("given");
    // Owned by root, in memory, and readable by all, like the page.
    let readable = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::set_permissions(readable.path(), fs::Permissions::from_mode(0o444)).unwrap();
    let path = readable.path().to_str().unwrap();
    let everyone = place.run(USER, &program, &["everyone", path]);
    if everyone.status.success() {
        debox_skipped::skipped(
            "security attributes: this kernel lets every user hang them on any file",
        );
    }
    place.check(USER, &program, &["page", path]);
    place.check(USER, &program, &["slots"]);
}

#[test]
fn a_flood_of_connections_does_not_keep_others_out() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    let flood = place.start(USER, &program, &["flood"]);
    for _ in 0..5 {
        place.check(OTHER, &program, &["addresses"]);
    }
    succeeded(&["flood"], &flood.wait_with_output().unwrap());
    // And the user is served again some time later.
    std::thread::sleep(Duration::from_millis(500));
    place.check(USER, &program, &["addresses"]);
}

#[test]
fn descriptors_do_not_run_out() {
    let place = Place::new();
    let program = place.program("brokered");
    // As many as one user may have, and then without enough descriptors even for that.
    for descriptors in [None, Some(150)] {
        let broker = place.broker_with(&[], descriptors);
        let before = broker.descriptors();
        let mut hoard = place.start(USER, &program, &["hoard"]);
        let mut line = String::new();
        let mut said = BufReader::new(hoard.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        if descriptors.is_none() {
            place.check(OTHER, &program, &["addresses"]);
        }
        drop(hoard.stdin.take());
        hoard.wait().unwrap();
        eventually("descriptors stay open", || broker.descriptors() <= before);
        place.check(OTHER, &program, &["addresses"]);
    }
}

#[test]
fn one_user_gets_no_more_than_its_share() {
    let place = Place::new();
    let broker = place.broker_with(&["--clients-per-user", "3"], None);
    let program = place.program("brokered");
    let start = || {
        let mut child = place.start(USER, &program, &["watch"]);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (child, line)
    };
    let mut children: Vec<Started> = Vec::new();
    for _ in 0..3 {
        let (child, line) = start();
        assert_eq!(line, "records\n");
        children.push(child);
    }
    let refused = place.run(USER, &program, &["addresses"]);
    assert!(
        text(&refused.stderr).contains("this user has reached the limit"),
        "{refused:?}"
    );
    place.check(OTHER, &program, &["addresses"]);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    eventually("what was given is not taken back", || {
        place.run(USER, &program, &["addresses"]).status.success()
    });
    drop(broker);
}

/// The owner of subordinate user ids counts as one user together with all of them.
#[test]
fn subordinate_users_count_for_their_owner() {
    let place = Place::new();
    let file = place.directory.join("subuid");
    fs::write(&file, format!("{USER}:200000:1000\n")).unwrap();
    let file = file.to_str().unwrap();
    let options = ["--clients-per-user", "2", "--subordinates", file];
    let _broker = place.broker_with(&options, None);
    let program = place.program("brokered");
    let clients = [200_000, 200_999].map(|user| {
        let mut client = place.start(user, &program, &["watch"]);
        let said = lines_of(&mut client);
        assert_eq!(said.recv_timeout(LIMIT).as_deref(), Ok("records"));
        client
    });
    for user in [USER, 200_500] {
        let refused = place.run(user, &program, &["addresses"]);
        assert!(
            text(&refused.stderr).contains("this user has reached the limit"),
            "{refused:?}"
        );
    }
    // A user id that is not the owner's has a share of its own.
    place.check(201_000, &program, &["addresses"]);
    drop(clients);
}

#[test]
fn refusals_are_logged_and_a_flood_is_a_few_lines() {
    let place = Place::new();
    let mut broker = place.broker();
    let program = place.program("brokered");
    place.check(USER, &program, &["nonsense"]);
    place.check(OTHER, &program, &["flood"]);
    let mut said = broker.said.take().unwrap();
    drop(broker);
    let mut log = String::new();
    said.read_to_string(&mut log).unwrap();
    let of = |user| {
        log.lines()
            .filter(move |line| line.contains(&format!("refused user {user}, ")))
    };
    assert!(
        of(USER).any(|line| line.contains("the request is not understood")),
        "{log}"
    );
    assert!(
        of(OTHER).any(|line| line.contains("connects too often")),
        "{log}"
    );
    for user in [USER, OTHER] {
        assert!(of(user).count() <= 10, "{log}");
    }
}

/// Probes of another kind stay in the kernel as long as they are used, and some time longer.
#[test]
fn probes_that_nobody_uses_are_unloaded() {
    let mut place = Place::new();
    let broker = place.broker();
    let program = place.program("tap");
    let before = broker.descriptors();
    place.run(USER, &program, &["sleep"]);
    assert!(broker.descriptors() > before + 10, "nothing was loaded");
    // The rest is waiting: other tests may go on.
    place.alone = None;
    let end = Instant::now() + Duration::from_secs(60);
    while broker.descriptors() > before {
        assert!(Instant::now() < end, "probes are left");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The output lines of a program, as they come.
fn lines_of(child: &mut Child) -> std::sync::mpsc::Receiver<String> {
    let (send, receive) = std::sync::mpsc::channel();
    let said = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in said.lines() {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

#[test]
fn a_client_has_no_other_threads_and_may_close_everything() {
    let place = Place::new();
    let _broker = place.broker();
    let program = place.program("brokered");
    place.check(USER, &program, &["alone"]);
    place.check(USER, &program, &["closes"]);
}

#[test]
fn a_clients_child_notices_that_the_broker_has_gone() {
    let place = Place::new();
    let program = place.program("brokered");
    let broker = place.broker();
    let mut client = place.start(USER, &program, &["child"]);
    let said = lines_of(&mut client);
    let next = || said.recv_timeout(Duration::from_secs(10));
    assert_eq!(next().as_deref(), Ok("records"));
    broker.kill();
    assert_eq!(next().as_deref(), Ok("none"));
    let _broker = place.broker();
    client.stdin.take().unwrap().write_all(b"x").unwrap();
    succeeded(&["child"], &client.wait_with_output().unwrap());
}

#[test]
fn clients_outlive_a_killed_broker_and_are_enrolled_again() {
    for arguments in [&["watch"][..], &["handler", "kernel"], &["handler", "user"]] {
        outlives_its_brokers(arguments);
    }
}

fn outlives_its_brokers(arguments: &[&str]) {
    let place = Place::new();
    let program = place.program("brokered");
    let broker = place.broker();
    let mut client = place.start(USER, &program, arguments);
    let said = lines_of(&mut client);
    let slowness = std::env::var("DEBOX_TESTS_SLOWNESS").ok();
    let slowness = slowness.and_then(|text| text.parse().ok()).unwrap_or(1);
    let next = |what: &str| {
        let line = said.recv_timeout(Duration::from_secs(10) * slowness);
        assert_eq!(line.as_deref(), Ok(what), "{arguments:?}");
    };
    next("records");
    broker.kill();
    next("none");
    let broker = place.broker();
    next("records");
    drop(broker); // with a SIGTERM this time
    next("none");
    let _broker = place.broker();
    next("records");
    assert!(client.try_wait().unwrap().is_none(), "the client has ended");
    client.kill().unwrap();
    client.wait().unwrap();
}

/// Programs in it read their own records and the names of places in the kernel.
#[test]
fn a_run_without_privilege_is_joined() {
    let place = Place::new();
    let _broker = place.broker();
    let joined = place.program("joined");
    let own = std::env::current_exe().unwrap();
    let debox = place.directory.join("debox");
    fs::copy(own.parent().unwrap().join("../debox"), &debox).unwrap();
    for (tap, check) in [
        ("user", "joined"),
        ("user", "results"),
        ("kernel", "beside"),
    ] {
        let arguments = ["run", "--tap", tap, "--output", "/dev/null", "--"];
        let arguments = [&arguments[..], &[joined.to_str().unwrap(), check]].concat();
        place.check(USER, &debox, &arguments);
    }
}

#[test]
fn there_is_one_broker_at_a_socket() {
    let place = Place::new();
    let _broker = place.broker();
    let own = std::env::current_exe().unwrap();
    let second = Command::new(own.parent().unwrap().join("../debox"))
        .arg("broker")
        .arg("--socket")
        .arg(place.socket())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(125));
    assert!(text(&second.stderr).contains("listens"), "{second:?}");
}
