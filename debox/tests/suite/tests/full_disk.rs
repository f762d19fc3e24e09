// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk that is full, or a file that may not grow: the command runs on and is waited for, what is lost
//! is counted, and what was there before stays.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use debox::history::Call;
use debox_history::History;
use debox_tests::debox_binary;
use debox_tests::require_root;
use debox_tests::skipped;
use debox_tests::slowness;
use debox_tests::wait_for;
use debox_tests::Scratch;

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes ten thousand calls a second until the file is there, and ends with status 7.
const BUSY: &str = "\
import os, sys, time
while not os.path.exists(sys.argv[1]):
    for _ in range(200): os.getppid()
    time.sleep(0.02)
sys.exit(7)
";

/// A megabyte of disk; unmounted when the test ends, however that ends.
struct Disk {
    scratch: Scratch,
    place: PathBuf,
}

impl Disk {
    fn mount(test: &str) -> Option<Disk> {
        require_root();
        let scratch = Scratch::new();
        let place = scratch.file("disk");
        fs::create_dir(&place).expect("scratch is writable");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&place)
            .status()
            .expect("mount can be executed");
        if !mounted.success() {
            skipped(test, "a tmpfs cannot be mounted");
            return None;
        }
        Some(Disk { scratch, place })
    }

    /// A btrfs with plenty of room, where a quota leaves 256 KiB.
    fn mount_with_quota(test: &str) -> Option<Disk> {
        require_root();
        if !has_file_system("btrfs") {
            skipped(test, "the kernel has no btrfs");
            return None;
        }
        let scratch = Scratch::new();
        let (image, place) = (scratch.file("image"), scratch.file("disk"));
        fs::create_dir(&place).expect("scratch is writable");
        let file = File::create(&image).expect("scratch is writable");
        file.set_len(128 << 20).expect("scratch is writable");
        let (image, at) = (path_of(&image), path_of(&place));
        succeeds(&["mkfs.btrfs", "-q", &image]);
        succeeds(&["mount", "-o", "loop", &image, &at]);
        let disk = Disk {
            scratch,
            place: place.clone(),
        };
        succeeds(&["btrfs", "quota", "enable", &at]);
        succeeds(&["btrfs", "qgroup", "limit", "256K", &at]);
        Some(disk)
    }

    /// An ext2 on a device that fails: it has 64 MiB, of which the tmpfs that holds it takes one.
    fn mount_on_failing_device(test: &str, options: &str) -> Option<FailingDisk> {
        if !has_file_system("ext2") {
            skipped(test, "the kernel has no ext2");
            return None;
        }
        let below = Disk::mount(test)?;
        let (image, place) = (below.file("image"), below.scratch.file("failing"));
        fs::create_dir(&place).expect("scratch is writable");
        let file = File::create(&image).expect("room");
        file.set_len(64 << 20).expect("it is sparse");
        succeeds(&["mkfs.ext2", "-q", "-E", "nodiscard", &path_of(&image)]);
        let options = format!("loop,{options}");
        let at = path_of(&place);
        succeeds(&["mount", "-t", "ext2", "-o", &options, &path_of(&image), &at]);
        let failing = Disk {
            scratch: Scratch::new(),
            place,
        };
        // `mkfs.ext2` has written to the image, so the filler takes what is left.
        let filler = File::create(below.file("filler")).expect("a file");
        let mut at = 0;
        while filler.write_all_at(&[1; 4096], at).is_ok() {
            at += 4096;
        }
        filler.set_len(at.saturating_sub(128 << 10)).expect("less");
        Some(FailingDisk { failing, below })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Leaves so many kilobytes.
    fn fill_up_to(&self, kilobytes: usize) {
        fs::write(self.file("filler"), vec![1; (1024 - kilobytes) << 10]).expect("room");
    }

    fn make_room(&self) {
        fs::remove_file(self.file("filler")).expect("it is there");
    }
}

/// Fields are dropped in this order: the file system, then what holds it.
struct FailingDisk {
    failing: Disk,
    below: Disk,
}

fn has_file_system(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").expect("proc is readable");
    known
        .lines()
        .any(|line| line.ends_with(&format!("\t{name}")))
}

#[track_caller]
fn succeeds(words: &[&str]) {
    let done = Command::new(words[0]).args(&words[1..]).output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    assert!(done.status.success(), "{words:?}: {done:?}");
}

fn path_of(path: &Path) -> String {
    path.to_str().expect("a path").to_string()
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.place).status();
    }
}

/// Debox and its command; both are ended with the test.
struct Recording {
    child: Child,
    said: PathBuf,
    stop: PathBuf,
}

impl Recording {
    fn start(scratch: &Scratch, prefix: &[&str], options: &[&str]) -> Recording {
        let (said, stop) = (scratch.file("said"), scratch.file("stop"));
        let debox = debox_binary();
        let words = [
            prefix,
            &[debox.to_str().expect("a path"), "record"],
            options,
            &["--", "/usr/bin/python3", "-S", "-c", BUSY],
            &[stop.to_str().expect("a path")],
        ]
        .concat();
        let child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stderr(File::create(&said).expect("scratch is writable"))
            .spawn()
            .expect("it can be executed");
        Recording { child, said, stop }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("scratch is readable")
    }

    #[track_caller]
    fn await_words(&self, words: &str) {
        let found = wait_for(PATIENCE, || self.said().contains(words));
        assert!(found, "debox did not say `{words}` but {}", self.said());
    }

    /// Ends the command, and returns what debox said. Its status is the command's.
    #[track_caller]
    fn end(mut self) -> String {
        assert!(
            self.child.try_wait().expect("a child").is_none(),
            "it ended before its command: {}",
            self.said()
        );
        fs::write(&self.stop, "").expect("scratch is writable");
        let status = self.child.wait().expect("a child");
        let said = self.said();
        println!("{said}");
        assert_eq!(status.code(), Some(7), "{said}");
        said
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::write(&self.stop, "");
        let _ = self.child.wait();
    }
}

fn calls(history: &History) -> Vec<Call> {
    history.calls().map(|call| call.expect("a row").1).collect()
}

#[test]
fn a_recording_waits_for_room_and_goes_on() {
    let Some(disk) = Disk::mount("a_recording_waits_for_room_and_goes_on") else {
        return;
    };
    disk.fill_up_to(60);
    let path = disk.file("x.parquet");
    let path = path.to_str().expect("a path");
    let recording = Recording::start(&disk.scratch, &[], &["-o", path]);
    recording.await_words("No space left on device");
    // What there is can be read all the time.
    History::open(&[path]).expect("whole groups");
    disk.make_room();
    recording.await_words("is written again");
    std::thread::sleep(Duration::from_millis(300));
    let said = recording.end();
    let history = History::open(&[path]).expect("a history");
    let meta = &history.files[0].meta;
    assert!(meta.complete, "{meta:?}");
    assert_eq!(history.files[0].cut_off, 0);
    assert!(said.contains(" in "), "{said}");
    let lost: u64 = meta.gaps.iter().map(|gap| gap.records).sum();
    assert_eq!(lost, meta.lost.unwritten, "{meta:?}");
    // Each call is in the file, or counted.
    let calls = calls(&history);
    assert_numbered(&calls, lost);
}

/// The main thread's calls are numbered without a gap, but for those that are counted as lost. A few records are of the
/// time between calls, which has no number.
#[track_caller]
fn assert_numbered(calls: &[Call], lost: u64) {
    let of_main = calls
        .iter()
        .filter(|call| call.number >= 0 && call.tid == call.pid);
    let mut ordinals: Vec<u64> = of_main.map(|call| call.ordinal).collect();
    ordinals.sort_unstable();
    let (first, last) = (ordinals[0], ordinals[ordinals.len() - 1]);
    assert_eq!(first, 1);
    let missing = last - ordinals.len() as u64;
    let of_calls = lost - lost / 100 - lost.min(2)..=lost;
    assert!(
        of_calls.contains(&missing),
        "{missing} calls are missing, {lost} records lost"
    );
}

/// Each call is in the file, or counted.
#[track_caller]
fn assert_whole(path: &str) {
    let history = History::open(&[path]).expect("a history");
    let meta = &history.files[0].meta;
    assert!(meta.complete, "{meta:?}");
    let lost: u64 = meta.gaps.iter().map(|gap| gap.records).sum();
    assert_eq!(lost, meta.lost.unwritten, "{meta:?}");
    assert_numbered(&calls(&history), lost);
}

#[test]
fn a_recording_without_room_counts_what_is_lost() {
    let Some(disk) = Disk::mount("a_recording_without_room_counts_what_is_lost") else {
        return;
    };
    disk.fill_up_to(150);
    let path = disk.file("x.parquet");
    let path = path.to_str().expect("a path");
    let recording = Recording::start(&disk.scratch, &[], &["-o", path]);
    recording.await_words("No space left on device");
    std::thread::sleep(Duration::from_secs(1));
    let said = recording.end();
    for words in ["lost that could not be written, from ", "cannot write to"] {
        assert!(said.contains(words), "{said}");
    }
    let history = History::open(&[path]).expect("whole groups");
    assert!(history.rows() > 0);
    let report = debox(&["report", path]);
    assert!(report.status.success(), "{report:?}");
    let lost = &history.files[0].meta.lost;
    if history.files[0].meta.complete {
        assert!(lost.unwritten > 0, "{lost:?}");
        let text = String::from_utf8_lossy(&report.stdout).into_owned();
        assert!(text.contains("not written, as the disk was full"), "{text}");
    }
}

/// As a full disk: the file goes on when the quota is raised.
#[test]
fn a_recording_waits_for_its_quota() {
    let Some(disk) = Disk::mount_with_quota("a_recording_waits_for_its_quota") else {
        return;
    };
    let path = path_of(&disk.file("x.parquet"));
    let recording = Recording::start(&disk.scratch, &[], &["-o", &path]);
    recording.await_words("Disk quota exceeded");
    History::open(&[&path]).expect("whole groups");
    let raised = Command::new("btrfs")
        .args(["qgroup", "limit", "none"])
        .arg(&disk.place)
        .status();
    assert!(raised.expect("btrfs can be executed").success());
    recording.await_words("is written again");
    std::thread::sleep(Duration::from_millis(300));
    recording.end();
    assert_whole(&path);
}

/// Writes fail, until the device takes them again.
#[test]
fn a_recording_waits_for_a_device_that_fails() {
    let test = "a_recording_waits_for_a_device_that_fails";
    let Some(disk) = Disk::mount_on_failing_device(test, "sync") else {
        return;
    };
    let path = path_of(&disk.failing.file("x.parquet"));
    let recording = Recording::start(&disk.failing.scratch, &[], &["-o", &path]);
    // EIO, or what the device below says.
    recording.await_words("cannot write to");
    disk.below.make_room();
    recording.await_words("is written again");
    std::thread::sleep(Duration::from_millis(300));
    recording.end();
    assert_whole(&path);
}

/// The kernel takes what is written, and finds only later that the device does not.
#[test]
fn a_device_that_fails_after_the_writes_is_reported() {
    let test = "a_device_that_fails_after_the_writes_is_reported";
    let Some(disk) = Disk::mount_on_failing_device(test, "async") else {
        return;
    };
    let path = path_of(&disk.failing.file("x.parquet"));
    let recording = Recording::start(&disk.failing.scratch, &[], &["-o", &path]);
    let grown = || fs::metadata(&path).is_ok_and(|found| found.len() > 256 << 10);
    assert!(wait_for(PATIENCE, grown), "{}", recording.said());
    let said = recording.end();
    // Of the device below, or EIO.
    assert!(said.contains("cannot write to"), "{said}");
}

#[test]
fn a_file_that_may_not_grow_is_followed_by_another() {
    require_root();
    let scratch = Scratch::new();
    let path = scratch.file("x.parquet");
    let path = path.to_str().expect("a path");
    // 400 KiB: some groups of two seconds.
    let limited = ["sh", "-c", "ulimit -f 800; exec \"$@\"", "sh"];
    let recording = Recording::start(&scratch, &limited, &["-o", path]);
    recording.await_words("File too large");
    recording.await_words("continues in");
    let said = recording.end();
    let next = scratch.file("x-1.parquet");
    assert!(next.exists(), "{said}");
    let mut files = vec![PathBuf::from(path)];
    files.extend(
        (1..)
            .map(|n| scratch.file(&format!("x-{n}.parquet")))
            .take_while(|f| f.exists()),
    );
    let history = History::open(&files).expect("a history");
    let last = history.files.last().expect("some");
    assert_numbered(&calls(&history), last.meta.lost.unwritten);
}

#[test]
fn a_rotation_goes_on_in_its_last_file_and_rotates_when_there_is_room() {
    let Some(disk) =
        Disk::mount("a_rotation_goes_on_in_its_last_file_and_rotates_when_there_is_room")
    else {
        return;
    };
    disk.fill_up_to(100);
    let path = disk.file("x.parquet");
    let path = path.to_str().expect("a path");
    let options = ["-o", path, "--rotate-time", "1s"];
    let recording = Recording::start(&disk.scratch, &[], &options);
    recording.await_words("No space left on device");
    recording.await_words("is continued instead");
    let files = || {
        let entries = fs::read_dir(&disk.place).expect("a directory");
        let names = entries.map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> = names
            .filter(|name| name.extension().is_some_and(|end| end == "parquet"))
            .collect();
        files.sort();
        files
    };
    let before = files().len();
    disk.make_room();
    let goes_on = wait_for(PATIENCE, || files().len() > before + 1);
    let said = recording.end();
    assert!(goes_on, "{said}");
    let history = History::open(&files()).expect("whole files");
    // What is lost is counted in each file from then on.
    let counted = history.files.iter().map(|file| file.meta.lost.unwritten);
    let lost = counted.max().expect("a file");
    assert_numbered(&calls(&history), lost);
}

#[test]
fn a_flight_recorder_writes_when_there_is_room() {
    let Some(disk) = Disk::mount("a_flight_recorder_writes_when_there_is_room") else {
        return;
    };
    let path = disk.file("last.parquet");
    fs::write(&path, "old").expect("room");
    disk.fill_up_to(16);
    let options = ["-o", path.to_str().expect("a path"), "--flight", "30s"];
    let recording = Recording::start(&disk.scratch, &[], &options);
    // A signal before the recorder is ready orders nothing.
    std::thread::sleep(Duration::from_secs(3 * slowness()));
    let signal = || {
        // SAFETY: the child has not been waited for.
        unsafe { libc::kill(recording.child.id() as i32, libc::SIGUSR1) }
    };
    assert_eq!(signal(), 0);
    recording.await_words("the flight recorder was not written");
    recording.await_words("No space left on device");
    assert_eq!(fs::read(&path).expect("a file"), b"old");
    disk.make_room();
    assert_eq!(signal(), 0);
    recording.await_words("records of");
    recording.end();
    assert!(History::open(&[&path]).expect("a history").rows() > 0);
    let left = fs::read_dir(&disk.place).expect("a directory").count();
    assert_eq!(left, 1, "something is left");
}

#[test]
fn a_process_that_runs_already_is_recorded_to_the_end() {
    let Some(disk) = Disk::mount("a_process_that_runs_already_is_recorded_to_the_end") else {
        return;
    };
    disk.fill_up_to(150);
    let path = disk.file("x.parquet");
    let stop = disk.scratch.file("stop");
    let mut busy = Command::new("/usr/bin/python3")
        .args(["-S", "-c", BUSY])
        .arg(&stop)
        .spawn()
        .expect("python3 can be executed");
    let pid = busy.id().to_string();
    let path = path.to_str().expect("a path");
    let done = debox(&["record", "-o", path, "-p", &pid, "--for", "10s"]);
    fs::write(&stop, "").expect("scratch is writable");
    busy.wait().expect("a child");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("lost that could not be written"), "{said}");
    assert!(History::open(&[path]).expect("whole groups").rows() > 0);
}

fn debox(arguments: &[&str]) -> std::process::Output {
    Command::new(debox_binary())
        .args(arguments)
        .output()
        .expect("debox can be executed")
}

/// Reports and exports leave the file that they cannot replace.
#[test]
fn an_old_file_stays_if_the_new_one_has_no_room() {
    let Some(disk) = Disk::mount("an_old_file_stays_if_the_new_one_has_no_room") else {
        return;
    };
    let recording = disk.scratch.file("x.parquet");
    let recording = recording.to_str().expect("a path");
    let run = [
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8; do ls -R /usr/include/linux; done",
    ];
    let done = debox(&[&["record", "-o", recording, "--"], &run[..]].concat());
    assert!(done.status.success());
    let names = ["r.json", "r.html", "x.ndjson", "run.json", "guard.json"];
    for name in names {
        fs::write(disk.file(name), "old").expect("room");
    }
    disk.fill_up_to(48);
    let at = |name: &str| disk.file(name).to_str().expect("a path").to_string();
    let json = format!("--json={}", at("r.json"));
    let refused = [
        vec!["report", recording, &json],
        vec!["export", recording, "-o", &at("x.ndjson")],
    ]
    .map(|arguments| debox(&arguments));
    for done in refused {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(125), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
    let output = at("run.json");
    fs::write(disk.file("more"), vec![1; 20 << 10]).expect("room");
    let options = ["run", "--format", "json", "-o", &output, "--"];
    let done = debox(&[&options[..], &run[..]].concat());
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("debox.report/1"), "it is printed: {said}");
    for name in names {
        assert_eq!(fs::read(disk.file(name)).expect("a file"), b"old", "{name}");
    }
    let left = fs::read_dir(Path::new(&disk.place)).expect("a directory");
    assert_eq!(left.count(), names.len() + 2, "something is left");
}
