//! The slow disk on this machine: FUSE, a loop device, ext4. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Not zeroes, because mkfs leaves those out.
fn content(file: u8) -> Vec<u8> {
    vec![b'a' + file; 20_000 + usize::from(file)]
}

/// A disk that is removed at the end of the test, even if the test fails.
struct Place {
    name: String,
    directory: tempfile::TempDir,
}

impl Place {
    fn new(test: &str) -> Place {
        // SAFETY: it cannot fail.
        assert_eq!(unsafe { libc::geteuid() }, 0, "these tests need root");
        let place = Place {
            name: format!("test-{test}-{}", std::process::id()),
            directory: tempfile::tempdir().expect("a directory"),
        };
        fs::create_dir(place.mount_point()).expect("a directory");
        for directory in 0..50 {
            let directory = place.path("files").join(format!("dir{directory}"));
            fs::create_dir_all(&directory).expect("a directory");
            for file in 0..3 {
                let content = content(file);
                fs::write(directory.join(format!("file{file}")), content).expect("a file");
            }
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn mount_point(&self) -> PathBuf {
        self.path("mnt")
    }

    fn disk(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latlab"));
        command.arg("disk").args(arguments);
        command.env_remove("RUST_BACKTRACE");
        command.output().expect("latlab runs")
    }

    fn up(&self, more: &[&str]) -> Output {
        let (files, mount) = (self.path("files"), self.mount_point());
        let mut arguments = vec![
            "up",
            &self.name,
            "--from",
            text(&files),
            "--mount",
            text(&mount),
        ];
        arguments.extend(more);
        self.disk(&arguments)
    }

    fn assert_gone(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(&self.name), "{mounts}");
        assert!(!mounts.contains(text(self.directory.path())), "{mounts}");
        let loops = Command::new("losetup").arg("-a").output().expect("losetup");
        let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
        assert!(!loops.contains(&self.name), "{loops}");
        let left: Vec<_> = fs::read_dir(self.directory.path())
            .expect("the directory")
            .collect();
        assert_eq!(left.len(), 2, "an image is left: {left:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.disk(&["down", &self.name, "--force"]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn succeeds(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn fails(output: &Output) -> String {
    assert!(
        !output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn times(checked: &Value, which: &str) -> Vec<u64> {
    let times = checked[which].as_array().expect("times");
    times
        .iter()
        .map(|time| time.as_u64().expect("a time"))
        .collect()
}

/// Every cold open and read takes at least the service time, warm ones do not, and the content is
/// intact.
#[test]
fn opens_and_reads_wait_for_the_disk_only_when_cold() {
    let place = Place::new("slow");
    succeeds(&place.up(&["--service", "8ms"]));
    let checked = succeeds(&place.disk(&["check", &place.name, "--json"]));
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    let (opens, reads) = (
        times(&checked, "cold_open_ns"),
        times(&checked, "cold_read_ns"),
    );
    let slow = |times: &[u64]| times.iter().filter(|ns| **ns >= 8_000_000).count();
    assert!(slow(&opens) * 2 > opens.len(), "{opens:?}");
    assert!(slow(&reads) * 10 >= reads.len() * 9, "{reads:?}");
    // The median, since this machine may be busy.
    let warm = times(&checked, "warm_open_ns");
    assert!(warm[warm.len() / 2] < 8_000_000, "{warm:?}");
    for file in 0..3u8 {
        let path = place.mount_point().join(format!("dir7/file{file}"));
        assert_eq!(fs::read(path).expect("a file"), content(file));
    }
    succeeds(&place.disk(&["down", &place.name]));
    place.assert_gone();
}

/// With depth 4, four times as many requests are served.
#[test]
fn the_depth_is_how_many_are_served_at_once() {
    let place = Place::new("depth");
    let took = |depth: &str| {
        succeeds(&place.disk(&["set", &place.name, "--service", "20ms", "--depth", depth]));
        succeeds(&place.disk(&["cool", &place.name]));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let mount_point = place.mount_point();
                scope.spawn(move || {
                    for directory in (reader..48).step_by(8) {
                        let path = mount_point.join(format!("dir{directory}/file1"));
                        assert_eq!(fs::read(path).expect("a file").len(), 20_001);
                    }
                });
            }
        });
        begin.elapsed()
    };
    succeeds(&place.up(&["--no-check"]));
    let (one, four) = (took("1"), took("4"));
    // 48 files, each with its own metadata and content: at least 96 requests of 20 ms.
    assert!(one > Duration::from_millis(1900), "{one:?}");
    assert!(four < one / 2, "{four:?} with a depth of 4, {one:?} with 1");
}

#[test]
fn a_disk_in_use_says_by_whom_and_a_killed_one_can_be_taken_down() {
    let place = Place::new("killed");
    succeeds(&place.up(&["--service", "1ms"]));
    let open = fs::File::open(place.mount_point().join("dir1/file1")).expect("a file");
    let error = fails(&place.disk(&["down", &place.name]));
    assert!(
        error.contains(&format!("({})", std::process::id())),
        "{error}"
    );
    drop(open);
    let state =
        fs::read_to_string(format!("/run/latlab/disks/{}.json", place.name)).expect("its note");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    let process = state["served_by"].as_i64().expect("a process") as i32;
    // SAFETY: numbers only; the process is the disk's own.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    let read = fs::read(place.mount_point().join("dir2/file2")).expect_err("nobody serves it");
    assert_eq!(read.raw_os_error(), Some(libc::EIO));
    succeeds(&place.disk(&["down", &place.name]));
    place.assert_gone();
}

#[test]
fn what_cannot_be_is_said_and_leaves_nothing() {
    let place = Place::new("wrong");
    let error = fails(&place.up(&["--depth", "0"]));
    assert!(error.contains("the depth is 0"), "{error}");
    let mount = place.mount_point();
    let no_image = place.path("files/dir0/file0");
    let image = [
        "up",
        &place.name,
        "--image",
        text(&no_image),
        "--mount",
        text(&mount),
    ];
    let error = fails(&place.disk(&image));
    assert!(error.contains("is it an ext4 image?"), "{error}");
    let error = fails(&place.disk(&["down", &place.name]));
    assert!(error.contains("there is no disk"), "{error}");
    // So fast that no open waits: refused, and taken down again.
    let files = place.path("files");
    let fast = [
        "up",
        &place.name,
        "--from",
        text(&files),
        "--mount",
        text(&mount),
    ];
    succeeds(&place.disk(&[&fast[..], &["--service", "0s"]].concat()));
    let error = fails(&place.up(&[]));
    assert!(error.contains("already"), "{error}");
    succeeds(&place.disk(&["down", &place.name]));
    place.assert_gone();
}
