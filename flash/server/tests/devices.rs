// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts below the served directory: one that does not answer, while others are served, and one that does not tell what is
//! in memory.

mod program;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use debox_skipped::skipped;
use program::{wait_until, Answer, Program};
use rustix::mount::{
    mount, mount_change, unmount, MountFlags, MountPropagationFlags, UnmountFlags,
};
use rustix::thread::{unshare_unsafe, UnshareFlags};

/// Gives this thread mounts of its own, which end with it and the processes that it starts.
fn own_mounts() -> rustix::io::Result<()> {
    // SAFETY: only the namespace of mounts changes; no descriptor does.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )
}

/// Ends with the test, also when it fails. The server must outlive it: what removes the server's directory
/// can remove no mount.
struct Mounted {
    at: PathBuf,
    _daemon: Option<File>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// A file system whose daemon never reads a request.
fn mount_hanging(at: PathBuf) -> std::io::Result<Mounted> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let fd = device.as_raw_fd();
    let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
    let options = std::ffi::CString::new(options).expect("no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("hangs", &at, "fuse", flags, options.as_c_str())?;
    Ok(Mounted {
        at,
        _daemon: Some(device),
    })
}

#[test]
fn a_mount_that_hangs_keeps_no_other_file_waiting() {
    if let Err(error) = own_mounts() {
        return skipped(&format!(
            "a mount that hangs: no mounts of one's own: {error}"
        ));
    }
    let config = "loops = 1\nhelpers = 2\ntimeouts = { disk = \"5m\" }\n[[server]]\n";
    let program = Program::start(config, &[("root/hung/below", ""), ("root/a", "of a")]);
    let _hanging = match mount_hanging(program.path("root/hung")) {
        Ok(hanging) => hanging,
        Err(error) => return skipped(&format!("a mount that hangs: no FUSE: {error}")),
    };
    let mut hanging = Vec::new();
    for number in 0..6 {
        let mut stream = program.connect();
        let request = format!("GET /hung/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        hanging.push(stream);
    }
    let waiting = "flash_helper_jobs_waiting{pool=\"names\",device=\"other\"}";
    wait_until("all helpers wait", || program.count(waiting) > 0);
    for number in 0..5 {
        // Names that nobody has looked for yet, so a helper has to.
        let answer = program.ask("GET", &format!("/none-{number}"), "");
        assert_eq!(answer.status, 404);
    }
    assert_eq!(program.ask("GET", "/a", "").body, "of a");
    assert!(program.count("flash_cold_names_total") >= 11);
    // Clients that reset their connections are not waited for, as long as the disk hangs.
    let open = || program.count("flash_connections");
    assert!(open() >= hanging.len() as u64);
    for stream in hanging {
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    }
    wait_until("all have gone", || open() <= 1);
}

/// Asks for each file 15 times on one connection. What is said to go on is kept back by the kernel for 200 ms if nothing
/// comes, so one file's answers would take three seconds.
fn are_answered_at_once(program: &Program, files: &[(&str, &str)]) {
    let mut stream = program.connect();
    for (target, body) in files {
        let begun = Instant::now();
        for _ in 0..15 {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            assert_eq!(Answer::next(&mut stream).body, *body);
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1500), "{target}: {took:?}");
    }
}

/// Once a file has not changed for two seconds, a helper reads it once in a second.
fn are_kept_for_a_while(program: &Program, files: &[(&str, &str)]) {
    std::thread::sleep(Duration::from_secs(3));
    let (kept, read) = ("flash_kept_parts_total", "flash_residency_unknown_total");
    let before = (program.count(kept), program.count(read));
    let begun = Instant::now();
    are_answered_at_once(program, files);
    let mut parts = 0;
    for (target, body) in files {
        parts += 15 * body.len().div_ceil(128 << 10) as u64;
        // From the end of a part to the begin of the next one, and what is in the middle of one.
        for (from, to) in [(131_000, 131_200), (10, 20)] {
            if let Some(expected) = body.get(from..=to) {
                let range = format!("Range: bytes={from}-{to}\r\n");
                let answer = program.ask("GET", target, &range);
                assert_eq!((answer.status, answer.body.as_str()), (206, expected));
            }
        }
    }
    let (kept, read) = (
        program.count(kept) - before.0,
        program.count(read) - before.1,
    );
    let most = (begun.elapsed().as_secs() + 2) * files.len() as u64 * 4;
    assert!(read <= most, "{read} of {parts} parts were read");
    assert!(
        kept + read >= parts && kept > 0,
        "{kept} were kept, {read} read"
    );
}

/// It knows what is in memory, but has no read that does not wait.
#[test]
fn files_on_tmpfs_are_answered_at_once() {
    if let Err(error) = own_mounts() {
        return skipped(&format!("tmpfs: no mounts of one's own: {error}"));
    }
    let program = Program::start(
        "loops = 1\nhelpers = 2\n[[server]]\n",
        &[("root/memory/below", "")],
    );
    let at = program.path("root/memory");
    mount("tmpfs", &at, "tmpfs", MountFlags::empty(), None).expect("root may mount it");
    let mounted = Mounted { at, _daemon: None };
    let at = &mounted.at;
    let large = "0123456789".repeat(30_000);
    std::fs::write(at.join("small"), "of a").expect("room in memory");
    std::fs::write(at.join("large"), &large).expect("room in memory");
    are_answered_at_once(
        &program,
        &[("/memory/small", "of a"), ("/memory/large", &large)],
    );
}

/// A layer, as a container's files have it: no read that does not wait, and a `cachestat` that is not true.
#[test]
fn files_on_overlayfs_are_answered_at_once() {
    if let Err(error) = own_mounts() {
        return skipped(&format!("overlayfs: no mounts of one's own: {error}"));
    }
    let large = "0123456789".repeat(30_000);
    let files = [
        ("lower/small", "of a"),
        ("lower/large", large.as_str()),
        ("root/layer/below", ""),
    ];
    let program = Program::start("loops = 1\nhelpers = 2\n[[server]]\n", &files);
    let part = |name: &str| program.path(name).display().to_string();
    for name in ["upper", "work"] {
        std::fs::create_dir(program.path(name)).expect("room");
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        part("lower"),
        part("upper"),
        part("work")
    );
    let options = std::ffi::CString::new(options).expect("no zero byte");
    let at = program.path("root/layer");
    let flags = MountFlags::empty();
    if let Err(error) = mount("overlay", &at, "overlay", flags, options.as_c_str()) {
        return skipped(&format!("overlayfs: it cannot be mounted here: {error}"));
    }
    let mounted = Mounted { at, _daemon: None };
    let files = [("/layer/small", "of a"), ("/layer/large", large.as_str())];
    are_answered_at_once(&program, &files);
    are_kept_for_a_while(&program, &files);
    // Another state of the file is another's: the answer is never one of before.
    for number in 0..10 {
        let text = format!("no. {number}");
        std::fs::write(mounted.at.join("small"), &text).expect("room");
        for _ in 0..3 {
            assert_eq!(program.ask("GET", "/layer/small", "").body, text);
        }
    }
}
