// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox top` names a planted wait and who holds it, in its tables and on its screen.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use debox_tests::{
    debox_binary, kernel_has, ms, require_root, skipped, slowness, wait_for, Background, Debox,
    Exclusive, Scratch,
};
use serde_json::Value;

/// A process that waits for a lock that its child holds for a minute.
struct Planted {
    waiter: Background,
    holder: u32,
    file: PathBuf,
    _scratch: Scratch,
}

impl Planted {
    fn new() -> Planted {
        let scratch = Scratch::new();
        let file = scratch.file("lock");
        let waiter = Background::start("flock_wait", &[file.to_str().expect("text"), "60000"]);
        waiter.await_call(libc::SYS_flock);
        let children = format!("/proc/{0}/task/{0}/children", waiter.pid());
        let children = fs::read_to_string(children).expect("its children");
        let holder = children.trim().parse().expect("one child");
        Planted {
            waiter,
            holder,
            file,
            _scratch: scratch,
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        // SAFETY: takes two numbers; the child lives until its parent, or this, ends it.
        unsafe { libc::kill(self.holder as i32, libc::SIGKILL) };
    }
}

#[test]
fn the_tables_name_the_wait_and_its_owner() {
    let planted = Planted::new();
    let pid = planted.waiter.pid().to_string();
    let top = |format: &str| {
        Debox::bare([
            "top",
            "-p",
            &pid,
            "--batch",
            "-n",
            "2",
            "--interval",
            "500ms",
        ])
        .options(["--format", format])
        .finish()
        .code(0)
        .stdout
    };
    let schema = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../schema/top-1.json"
    ));
    let schema = serde_json::from_str(&schema.expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let looks: Vec<Value> = top("json")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    assert_eq!(looks.len(), 2);
    for look in &looks {
        if let Err(error) = schema.validate(look) {
            panic!("{error} in {look:#}");
        }
    }
    let look = &looks[1];
    let rows = look["rows"].as_array().expect("rows");
    let row = rows
        .iter()
        .find(|row| row["pid"] == planted.waiter.pid())
        .expect("the waiter's row");
    assert_eq!(row["why"][0]["what"], "flock", "{row:#}");
    assert_eq!(row["why"][0]["kind"], "lock", "{row:#}");
    // Before Linux 6.2 probes cannot find the holder by its number, and it is the file that holds it up.
    let holder = match kernel_has("bpf_task_from_pid") {
        true => format!("holder/{}", planted.holder),
        false => format!("file {}", planted.file.display()),
    };
    assert_eq!(row["held_by"][0]["what"], holder.as_str(), "{row:#}");
    assert_eq!(row["open_waits"], 1, "{row:#}");
    // The whole interval, within what the two clocks and the start of the wait differ by.
    let (interval, waited) = (
        look["interval_ns"].as_u64().unwrap(),
        row["waiting_ns"].as_u64().unwrap(),
    );
    assert!(
        interval >= ms(450) && interval < ms(5_000) * slowness(),
        "{look:#}"
    );
    assert!(
        waited.abs_diff(interval) < ms(50) * slowness(),
        "{waited} of {interval}"
    );
    let table = top("table");
    assert!(
        table.contains("flock") && (table.contains(&holder) || holder.starts_with("file ")),
        "{table}"
    );
}

/// A terminal of 80 columns and 24 lines, with debox in it.
struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    _exclusive: Exclusive,
}

impl Terminal {
    fn open(arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
        require_root();
        let exclusive = Exclusive::take();
        let size = libc::winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut own, mut other) = (-1, -1);
        // SAFETY: both numbers can be written, and the size is read.
        let failed = unsafe {
            libc::openpty(
                &mut own,
                &mut other,
                std::ptr::null_mut(),
                std::ptr::null(),
                &size,
            )
        };
        assert_eq!(failed, 0, "there is no terminal");
        // SAFETY: both descriptors are new.
        let (own, other) = unsafe { (OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(other)) };
        let mut command = Command::new(debox_binary());
        command
            .args(arguments)
            .envs(
                variables
                    .iter()
                    .map(|(name, value)| (OsString::from(name), OsString::from(value))),
            )
            .env("TERM", "xterm-256color")
            .env_remove("LD_LIBRARY_PATH")
            .stdin(other.try_clone().expect("a descriptor"))
            .stdout(other.try_clone().expect("a descriptor"))
            .stderr(other);
        // SAFETY: both calls may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let child = command.spawn().expect("debox can be started");
        drop(command); // and with it the descriptors of the other end
        let keys = File::from(own);
        let mut reader = keys.try_clone().expect("a descriptor");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal {
            child,
            keys,
            output,
            screen: vt100::Parser::new(24, 80, 0),
            _exclusive: exclusive,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    /// Waits until all of these words are on the screen.
    #[track_caller]
    fn await_words(&mut self, words: &[&str]) -> String {
        let deadline = Instant::now() + Duration::from_secs(15 * slowness());
        loop {
            while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(50)) {
                self.screen.process(&bytes);
            }
            let shown = self.screen.screen().contents();
            if words.iter().all(|word| shown.contains(word)) {
                return shown;
            }
            assert!(
                Instant::now() < deadline,
                "{words:?} are not all in:\n{shown}"
            );
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_leads_from_the_machine_to_the_owner_by_keys() {
    if !kernel_has("bpf_task_from_pid") {
        let reason = "this kernel does not let probes find tasks by their numbers (Linux 6.2)";
        return skipped(
            "the_screen_leads_from_the_machine_to_the_owner_by_keys",
            reason,
        );
    }
    let planted = Planted::new();
    let pid = planted.waiter.pid().to_string();
    let holder = format!("holder/{}", planted.holder);
    let arguments = ["top", "-p", &pid, "--interval", "300ms"];
    let mut terminal = Terminal::open(&arguments, &[("NO_COLOR", "1")]);
    let shown = terminal.await_words(&["flock_wait", "flock", &holder]);
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    terminal.press("/class == disc\r");
    terminal.await_words(&["filter: class == disc_"]);
    terminal.press("\x1b");
    std::thread::sleep(Duration::from_millis(100));
    terminal.press("/class == lock\r");
    terminal.await_words(&["where class == lock", "flock"]);
    terminal.press("\r");
    terminal.await_words(&["by thread, in process"]);
    terminal.press("\r");
    let held = format!("held by {holder} (exact)");
    terminal.await_words(&["thread", &held, "kernel: ", "Its last calls"]);
    terminal.press("\x1b");
    terminal.await_words(&["by thread"]);
    terminal.press("T");
    terminal.await_words(&["minutes", "lock", "computing"]);
    terminal.press("xo");
    terminal.await_words(&["by owner", &holder]);
    let colours = |cell: &vt100::Cell| cell.fgcolor() != vt100::Color::Default;
    let screen = terminal.screen.screen();
    let cells = (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
    assert!(!cells.into_iter().any(colours), "NO_COLOR");
    terminal.press("q");
    let ended = wait_for(Duration::from_secs(10), || {
        terminal
            .child
            .try_wait()
            .expect("a child")
            .is_some_and(|status| status.success())
    });
    assert!(ended, "q ends it");
}
