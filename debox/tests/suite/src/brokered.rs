// SPDX-License-Identifier: MIT OR Apache-2.0
//! A broker, and users without privilege who run debox through it.

use std::ffi::OsStr;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::debox_binary;
use crate::program;
use crate::skipped;
use crate::wait_for;
use crate::Debox;
use crate::Finished;
use crate::Measured;
use crate::HIDDEN_SWITCHES_ATTEMPTS;

/// Users that own nothing on this machine.
pub const USER: u32 = 65534;
pub const OTHER: u32 = 65533;

/// A directory that any user can reach, with copies of debox and of programs. It goes with the
/// test, and the broker in it.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    broker: Option<Child>,
}

impl Place {
    /// Without a broker.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("debox-place-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).expect("a directory for temporary files");
        let made = Self {
            directory,
            broker: None,
        };
        // Reports of any user are written here.
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).expect("own file");
        made.copy(&debox_binary());
        made
    }

    /// With a broker that has these limits.
    pub fn with_broker(limits: &[&str]) -> Self {
        let mut made = Self::new();
        made.start_broker(limits);
        made
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Where the broker listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("broker.sock")
    }

    /// A copy of a file that any user can run.
    pub fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.directory.join(file.file_name().expect("a file"));
        fs::copy(file, &copy).expect("a file can be copied");
        copy
    }

    /// A copy that runs with the rights of another user than its caller's.
    pub fn set_user_id(&self, file: &Path, name: &str) -> PathBuf {
        let copy = self.directory.join(name);
        fs::copy(file, &copy).expect("a file can be copied");
        std::os::unix::fs::chown(&copy, Some(OTHER), None).expect("root may");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("own file");
        copy
    }

    /// Starts a broker, which must not be there yet, and waits until it listens.
    #[track_caller]
    pub fn start_broker(&mut self, limits: &[&str]) {
        assert!(self.broker.is_none());
        let mut broker = Command::new(debox_binary())
            .args(["broker", "--socket"])
            .arg(self.socket())
            .args(limits)
            .stderr(Stdio::piped())
            .spawn()
            .expect("debox runs");
        let mut line = String::new();
        let mut said = BufReader::new(broker.stderr.take().expect("piped"));
        self.broker = Some(broker);
        said.read_line(&mut line).expect("the broker speaks");
        assert!(line.contains("listening"), "the broker says: {line}");
    }

    /// Ends the broker the way that leaves it no time.
    pub fn kill_broker(&mut self) {
        let mut broker = self.broker.take().expect("there is a broker");
        broker.kill().expect("own child");
        broker.wait().expect("own child");
    }

    /// Ends it and checks that it ends well.
    #[track_caller]
    pub fn stop_broker(&mut self) {
        let mut broker = self.broker.take().expect("there is a broker");
        // SAFETY: the process is our own and not waited for yet.
        unsafe { libc::kill(broker.id() as i32, libc::SIGTERM) };
        let mut status = None;
        wait_for(Duration::from_secs(20), || {
            status = broker.try_wait().expect("own child");
            status.is_some()
        });
        let status = status.expect("the broker ends");
        assert!(status.success(), "the broker: {status}");
    }

    /// How many descriptors the broker has open.
    pub fn broker_descriptors(&self) -> usize {
        let pid = self.broker_pid();
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the broker lives");
        entries.count()
    }

    /// The broker's process.
    pub fn broker_pid(&self) -> i32 {
        self.broker.as_ref().expect("there is a broker").id() as i32
    }

    /// The words that make a command line another user's, who knows of the broker.
    pub fn words_of(&self, user: u32) -> Vec<String> {
        vec![
            "setpriv".to_string(),
            format!("--reuid={user}"),
            format!("--regid={user}"),
            "--clear-groups".to_string(),
            "env".to_string(),
            format!("DEBOX_BROKER={}", self.socket().display()),
        ]
    }

    /// The same in a PID namespace of its own; `None`, and told, where this machine allows none.
    pub fn words_in_namespace(&self, user: u32) -> Option<Vec<String>> {
        let inside = ["unshare", "--pid", "--fork", "--mount-proc"].map(String::from);
        let mut tried = Command::new("unshare");
        let tried = tried.args(&inside[1..]).arg("true").status();
        if !tried.is_ok_and(|status| status.success()) {
            skipped("PID namespace", "this machine does not allow one");
            return None;
        }
        Some([inside.to_vec(), self.words_of(user)].concat())
    }

    /// `debox run` of a copy of a truth program.
    pub fn run(&self, name: &str) -> Debox {
        self.command(self.copy(&program(name)))
    }

    /// `debox run` of any program.
    pub fn command(&self, path: impl AsRef<OsStr>) -> Debox {
        Debox::command(path).binary(&self.directory.join("debox"))
    }

    /// Runs it as a user, expects success, and reads and checks the JSON report.
    #[track_caller]
    pub fn report_of(&self, user: u32, make: impl Fn() -> Debox) -> Measured {
        self.report_under(&self.words_of(user), make)
    }

    /// The same by way of these words, which make a user of who runs it.
    #[track_caller]
    pub fn report_under(&self, wrap: &[String], make: impl Fn() -> Debox) -> Measured {
        for _ in 1..HIDDEN_SWITCHES_ATTEMPTS {
            let (output, finished) = self.write_report(wrap, make());
            if !finished.proves_little(&output) {
                return finished.measured(&output);
            }
        }
        let (output, finished) = self.write_report(wrap, make());
        finished.measured(&output)
    }

    #[track_caller]
    fn write_report(&self, wrap: &[String], debox: Debox) -> (PathBuf, Finished) {
        let output = self.report_file();
        let debox = debox.options(["--format", "json", "--output"]);
        let finished = debox.options([&output]).finish_under(wrap);
        assert!(finished.status.success(), "{finished}");
        (output, finished)
    }

    /// The path of a report that is not there yet.
    pub fn report_file(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("report-{number}.json"))
    }

    /// Any program as a user, in the background.
    pub fn start(&self, user: u32, words: &[&str]) -> Child {
        let all = self.words_of(user);
        Command::new(&all[0])
            .args(&all[1..])
            .args(words)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv runs")
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}
