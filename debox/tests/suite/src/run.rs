// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running the command under test, and never leaving anything of it behind.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;

use crate::debox_binary;
use crate::invariants;
use crate::program;
use crate::require_root;
use crate::wait_for;
use crate::Exclusive;
use crate::Facts;
use crate::Group;
use crate::Measured;
use crate::Scratch;

/// How often a case is run before one with hidden switches has to do.
pub const HIDDEN_SWITCHES_ATTEMPTS: usize = 8;

/// No case takes longer; one that does hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A `debox` command line being put together.
#[derive(Debug)]
pub struct Debox {
    binary: PathBuf,
    options: Vec<OsString>,
    /// The program to measure and its arguments; empty for a bare command line.
    target: Vec<OsString>,
    scratch: Scratch,
    limit: Duration,
}

impl Debox {
    /// `debox run` of a truth program.
    pub fn run(name: &str) -> Self {
        Self::command(program(name))
    }

    /// `debox run` of any program.
    pub fn command(path: impl AsRef<OsStr>) -> Self {
        let mut made = Self::bare(["run"]);
        made.target.push(path.as_ref().to_owned());
        made
    }

    /// A command line as given.
    pub fn bare<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let options = arguments
            .into_iter()
            .map(|text| text.as_ref().to_owned())
            .collect();
        Self {
            binary: debox_binary(),
            options,
            target: Vec::new(),
            scratch: Scratch::new(),
            limit: LIMIT,
        }
    }

    /// Another copy of debox.
    pub fn binary(mut self, path: &Path) -> Self {
        self.binary = path.to_path_buf();
        self
    }

    /// Arguments of the measured program.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.target
            .extend(arguments.into_iter().map(|text| text.as_ref().to_owned()));
        self
    }

    /// An argument that is a file of this run's own directory, which goes with the run.
    pub fn file_arg(mut self, name: &str) -> Self {
        self.target.push(self.scratch.file(name).into());
        self
    }

    /// The measured program runs in this control group.
    pub fn within(mut self, group: &Group) -> Self {
        let enter = ["/bin/sh", "-c", &group.enter(), "sh"].map(OsString::from);
        self.target.splice(..0, enter);
        self
    }

    /// How long it may take, in seconds, when that is longer than most cases take.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Options of debox itself.
    pub fn options<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.options
            .extend(arguments.into_iter().map(|text| text.as_ref().to_owned()));
        self
    }

    /// Starts debox in a process group of its own and does not wait for it. `wrap` is put before
    /// it on the command line.
    #[track_caller]
    fn start(self, wrap: &[&OsStr]) -> Running {
        require_root();
        let exclusive = Exclusive::take();
        let (stdout, stderr) = (self.scratch.file("stdout"), self.scratch.file("stderr"));
        let mut words: Vec<OsString> = wrap.iter().map(|word| word.to_os_string()).collect();
        words.push(self.binary.into());
        words.extend(self.options);
        if !self.target.is_empty() {
            words.push("--".into());
            words.extend(self.target);
        }
        let mut command = Command::new(&words[0]);
        // SAFETY: between fork and exec, only async-signal-safe calls are made.
        unsafe {
            command.pre_exec(|| {
                // A shell that runs the tests in the background has Ctrl-C ignored.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            })
        };
        let child = command
            .args(&words[1..])
            // cargo's own, in which every program's loader would look first
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).expect("scratch directory is writable"))
            .stderr(File::create(&stderr).expect("scratch directory is writable"))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", words[0]));
        Running {
            child,
            stdout,
            stderr,
            scratch: Some(self.scratch),
            limit: self.limit,
            _exclusive: exclusive,
        }
    }

    /// Starts it and leaves it running.
    #[track_caller]
    pub fn spawn(self) -> Running {
        self.start(&[])
    }

    /// Runs it to its end, whatever that is.
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.spawn().finish()
    }

    /// Runs it to its end by way of another command, such as one that drops privileges.
    #[track_caller]
    pub fn finish_under<S: AsRef<OsStr>>(self, wrap: &[S]) -> Finished {
        let wrap: Vec<&OsStr> = wrap.iter().map(AsRef::as_ref).collect();
        self.start(&wrap).finish()
    }

    /// Runs it, expects success, and reads and checks the JSON report.
    ///
    /// Some virtual machines hide switches from probes; debox tells how many, and what it then
    /// cannot know. Such a run proves nothing about what it hides and is made again, and so is one of
    /// whose waiting the kernel's own account is wrong.
    #[track_caller]
    pub fn report(self) -> Measured {
        let mut this = self;
        for _ in 1..HIDDEN_SWITCHES_ATTEMPTS {
            let again = this.again();
            let (output, finished) = this.write_report();
            if !finished.proves_little(&output) {
                return finished.measured(&output);
            }
            this = again;
        }
        let (output, finished) = this.write_report();
        finished.measured(&output)
    }

    /// The same for a run that is too long to be made again: with hidden switches it has to do.
    #[track_caller]
    pub fn report_of_one_run(self) -> Measured {
        let (output, finished) = self.write_report();
        finished.measured(&output)
    }

    /// The same for a run that is meant to lose something: nothing is checked.
    #[track_caller]
    pub fn unchecked_report(self) -> Measured {
        let (output, finished) = self.write_report();
        finished.unchecked(&output)
    }

    #[track_caller]
    fn write_report(self) -> (PathBuf, Finished) {
        let output = self.scratch.file("report.json");
        let finished = self
            .options(["--format", "json", "--output"])
            .options([output.as_os_str()])
            .finish();
        assert!(finished.status.success(), "{finished}");
        (output, finished)
    }

    /// The same command line with a directory of its own.
    fn again(&self) -> Self {
        let scratch = Scratch::new();
        let moved = |word: &OsString| match Path::new(word).strip_prefix(self.scratch.path()) {
            Ok(name) => scratch.path().join(name).into(),
            Err(_) => word.clone(),
        };
        Self {
            binary: self.binary.clone(),
            options: self.options.iter().map(moved).collect(),
            target: self.target.iter().map(moved).collect(),
            scratch,
            limit: self.limit,
        }
    }
}

/// A debox that was started. Dropped before its end, it and all its children are killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Given on to [`Finished`] at the end; until then the run is not over.
    scratch: Option<Scratch>,
    limit: Duration,
    _exclusive: Exclusive,
}

impl Running {
    /// The process id of debox, and its process group.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The directory of this run.
    pub fn scratch(&self) -> &Scratch {
        self.scratch.as_ref().expect("the run is not over")
    }

    /// Sends a signal to debox alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no memory; the child was not waited for, so the id is still its own.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Sends a signal to the whole process group, as a terminal does.
    pub fn signal_group(&self, signal: i32) {
        // SAFETY: as above.
        unsafe { libc::kill(-self.pid(), signal) };
    }

    /// The file that standard output goes to; it is removed with the run.
    pub fn stdout_path(&self) -> &Path {
        &self.stdout
    }

    /// What the program has printed so far.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Direct children of debox that run the named program.
    pub fn children(&self, name: &str) -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let is_named = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim_end() == &name[..name.len().min(15)])
        };
        text.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .filter(is_named)
            .collect()
    }

    /// Waits for the named program to run under debox and gives its process id.
    #[track_caller]
    pub fn await_child(&self, name: &str) -> i32 {
        let mut found = 0;
        let started = wait_for(Duration::from_secs(20), || {
            found = self.children(name).first().copied().unwrap_or(0);
            found != 0
        });
        let stderr = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        assert!(
            started,
            "{name} never ran under debox, which said: {stderr}"
        );
        found
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let (mut status, limit) = (None, self.limit);
        wait_for(limit, || {
            status = self.child.try_wait().expect("wait for a child");
            status.is_some()
        });
        let read = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let (stdout, stderr) = (read(&self.stdout), read(&self.stderr));
        let Some(status) = status else {
            panic!("debox did not end within {limit:?}; output:\n{stdout}\nerrors:\n{stderr}");
        };
        let scratch = self.scratch.take().expect("the run is not over");
        Finished {
            status,
            stdout,
            stderr,
            scratch,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.scratch.is_some() {
            self.signal_group(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// A debox that ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    scratch: Scratch,
}

impl Finished {
    /// Asserts the exit status.
    #[track_caller]
    pub fn code(self, expected: i32) -> Self {
        assert_eq!(self.status.code(), Some(expected), "{self}");
        self
    }

    /// Asserts that debox died of a signal itself.
    #[track_caller]
    pub fn died_of(self, signal: i32) -> Self {
        assert_eq!(self.status.signal(), Some(signal), "{self}");
        self
    }

    /// Asserts that the errors name all of the words, so that a person knows what happened, and
    /// are words and not a panic's backtrace.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            let found = self.stderr.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "the message does not say `{word}`: {self}");
        }
        assert!(!self.stderr.contains("panicked at"), "{self}");
        self
    }

    /// The directory of this run.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    #[track_caller]
    fn unchecked(self, output: &Path) -> Measured {
        let text = std::fs::read_to_string(output).expect("a report was written");
        let report = serde_json::from_str(&text).expect("the report is JSON");
        let facts = Facts::from_output(&self.stdout);
        Measured::new(report, facts.unwrap_or_default())
    }

    /// Whether the report says that the kernel did not show all switches, or the kernel's own account
    /// is known to be wrong. Such a run proves nothing about the sleeps in it.
    pub fn proves_little(&self, output: &Path) -> bool {
        let text = std::fs::read_to_string(output).unwrap_or_default();
        let report = serde_json::from_str(&text).unwrap_or_default();
        text.contains("the kernel did not show")
            || Facts::from_output(&self.stdout)
                .is_some_and(|facts| invariants::counts_sleep_as_waiting(&report, &facts))
    }

    /// Reads the report that was written to `output` and checks what holds for any report.
    #[track_caller]
    pub fn measured(self, output: &Path) -> Measured {
        let text = std::fs::read_to_string(output)
            .unwrap_or_else(|error| panic!("no report at {}: {error}; {self}", output.display()));
        let report = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("the report is not JSON: {error}\n{text}"));
        let facts = Facts::from_output(&self.stdout);
        let problems = invariants::check_report(&report, facts.as_ref());
        assert!(problems.is_empty(), "{}\nin {text}", problems.join("\n"));
        Measured::new(report, facts.unwrap_or_default())
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            status,
            stdout,
            stderr,
            ..
        } = self;
        write!(
            formatter,
            "debox ended with {status}; output:\n{stdout}\nerrors:\n{stderr}"
        )
    }
}
