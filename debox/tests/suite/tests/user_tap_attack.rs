// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is not of the session gets nothing of the user tap, and what a program writes there is not
//! believed if it cannot be true. SECURITY.md names the tests.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use debox_tests::brokered::Place;
use debox_tests::brokered::USER;
use debox_tests::debox_binary;
use debox_tests::ms;
use debox_tests::Debox;
use debox_tests::Exclusive;
use debox_tests::Measured;

/// Owns nothing on this machine and runs nothing.
const STRANGER: u32 = 12345;

/// The sockets of user taps on this machine, as anybody can list them: `@` begins an abstract name.
fn sockets() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").expect("a list of sockets");
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7));
    let is_taps = |name: &&str| name.contains("debox-tap-");
    names.filter(is_taps).map(str::to_string).collect()
}

/// How many descriptors a server gives to this process as that user. A thread of its own takes the user.
fn take_as(user: u32, socket: &str) -> usize {
    let socket = socket.to_string();
    let thief = std::thread::spawn(move || {
        // SAFETY: takes no memory; the raw call changes this thread's user only.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
        assert_eq!(changed, 0);
        take(&socket)
    });
    thief.join().expect("the thief ends")
}

fn take(socket: &str) -> usize {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers and returns a new descriptor or -1.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new and has no other owner.
    let client = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let is_abstract = socket.starts_with('@');
    for (to, from) in address.sun_path.iter_mut().zip(socket.bytes()) {
        *to = if from == b'@' {
            0
        } else {
            from as libc::c_char
        };
    }
    let length = 2 + socket.len() + usize::from(!is_abstract);
    // SAFETY: the address is as long as said.
    let failed = unsafe {
        libc::connect(
            client.as_raw_fd(),
            (&raw const address).cast(),
            length as libc::socklen_t,
        )
    };
    if failed != 0 {
        return 0;
    }
    let mut bytes = [0u8; 64];
    let mut control = [0u64; 16];
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros are a valid header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&mut data, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = std::mem::size_of_val(&control) as _;
    // SAFETY: the header points to buffers of the lengths that it gives.
    let got = unsafe { libc::recvmsg(client.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
    // SAFETY: the kernel has filled in the header.
    let part = unsafe { libc::CMSG_FIRSTHDR(&header).as_ref() };
    let Some(part) = part.filter(|_| got > 0) else {
        return 0;
    };
    (part.cmsg_len - std::mem::size_of::<libc::cmsghdr>()) / 4
}

/// Starts a command that says "on" under the user tap, and waits until it has.
#[track_caller]
fn start(words: &[String]) -> Child {
    let mut command = Command::new(&words[0]);
    let started = command
        .args(&words[1..])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.expect("it runs");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("text");
    assert_eq!(line, "on\n");
    child
}

fn words_of_run(debox: &str, output: &str) -> Vec<String> {
    let words = [
        debox,
        "run",
        "--tap",
        "user",
        "--format",
        "json",
        "--output",
        output,
        "--",
        "sh",
        "-c",
        "echo on; read line",
    ];
    words.map(str::to_string).to_vec()
}

/// As other users, and as root, which is no process of the session either.
#[track_caller]
fn nobody_else_gets_anything(before: &[String]) {
    let all = sockets();
    let new: Vec<_> = all.iter().filter(|name| !before.contains(name)).collect();
    assert!(!new.is_empty(), "the session has no socket");
    for socket in new {
        for user in [STRANGER, USER, 0] {
            let got = take_as(user, socket);
            assert_eq!(got, 0, "user {user} got descriptors of {socket}");
        }
    }
}

#[track_caller]
fn ends_well(mut child: Child, output: &str) {
    drop(child.stdin.take());
    child.wait().expect("own child");
    let text = fs::read_to_string(output).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["lost"]["refused"], 0, "{text}");
    let calls = report["syscalls"].as_array().expect("rows").iter();
    let mut calls = calls.filter(|row| row["name"] == "read" || row["name"] == "write");
    assert!(calls.next().is_some(), "the tap saw nothing: {text}");
}

/// The session is in a PID namespace: who is not has no number there, as a free slot has no thread.
#[test]
fn who_has_no_number_in_the_sessions_namespace_gets_nothing() {
    let _turn = Exclusive::take();
    let place = Place::with_broker(&[]);
    let Some(mut words) = place.words_in_namespace(USER) else {
        return;
    };
    let before = sockets();
    let debox = place.path().join("debox");
    let output = place.report_file();
    let (debox, output) = (debox.to_str(), output.to_str());
    let (debox, output) = (debox.expect("text"), output.expect("text"));
    words.extend(words_of_run(debox, output));
    let child = start(&words);
    nobody_else_gets_anything(&before);
    ends_well(child, output);
}

#[test]
fn a_session_of_roots_gives_nothing_to_who_is_not_monitored() {
    let _turn = Exclusive::take();
    let place = Place::new();
    let before = sockets();
    let output = place.report_file();
    let output = output.to_str().expect("text");
    let debox = debox_binary();
    let child = start(&words_of_run(debox.to_str().expect("text"), output));
    nobody_else_gets_anything(&before);
    ends_well(child, output);
}

/// A program in its own session's files: nothing of what it says there is reported, and the rest is.
#[test]
fn what_cannot_be_true_is_refused_and_counted() {
    let run = |place: &str| {
        let debox = Debox::run("tap_scribble").args([place]);
        debox.options(["--tap", "user"]).unchecked_report()
    };
    let is_sane = |run: &Measured| {
        let totals = &run.report["totals"];
        for part in ["kernel_cpu_ns", "user_cpu_ns", "wall_ns"] {
            let ns = totals[part].as_u64().expect("a time");
            assert!(ns < ms(60_000), "{part}: {totals}");
        }
    };
    let honest = run("none");
    assert_eq!(honest.report["lost"]["refused"], 0);
    honest.call("getppid").calls(1000);

    let rows = run("rows");
    assert_eq!(rows.report["lost"]["refused"], 2);
    is_sane(&rows);
    rows.call("getgid").calls(1000);
    assert_eq!(rows.count_of("getppid"), 0);
    assert_eq!(rows.count_of("getuid"), 0);

    let slot = run("slot");
    assert_eq!(slot.report["lost"]["refused"], 1);
    is_sane(&slot);
    slot.call("getppid").calls(1000);

    let told = Debox::run("tap_scribble").args(["rows"]);
    let told = told.options(["--tap", "user"]).finish().code(0);
    told.says(&["refused: 2 counts"]);
}

/// Where the session's socket cannot be reached any more, threads of a program find their slots all the same.
#[test]
fn a_program_that_changes_its_root_keeps_its_tap() {
    let python = "import os, threading\n\
        os.chroot('/tmp'); os.chdir('/')\n\
        gate = threading.Barrier(101)\n\
        def one():\n\
        \x20   gate.wait()\n\
        \x20   for _ in range(10): os.getppid()\n\
        threads = [threading.Thread(target=one) for _ in range(100)]\n\
        [t.start() for t in threads]; gate.wait(); [t.join() for t in threads]\n";
    let debox = Debox::command("/usr/bin/python3").args(["-c", python]);
    let run = debox.options(["--tap", "user"]).unchecked_report();
    run.call("getppid").calls(1000);
    run.call("chroot").calls(1);
}
