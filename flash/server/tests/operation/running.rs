// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `flash run` with its directory.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that another process does.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < PATIENCE,
            "in {PATIENCE:?} it never came to: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that everybody may read, with two roots.
pub struct Place(TempDir);

impl Place {
    pub fn new(config: &str) -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(), open).expect("it is ours");
        for name in ["a", "b", "logs"] {
            fs::create_dir(place.at(name)).expect("room");
            fs::write(place.at(name).join("index.html"), format!("of {name}\n")).expect("room");
        }
        fs::write(place.at("a/big"), big()).expect("room");
        place.configure(config);
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Replaces the configuration in one step, as an editor does.
    pub fn configure(&self, config: &str) {
        fs::write(self.at("new"), config).expect("room");
        fs::rename(self.at("new"), self.at("flash.toml")).expect("room");
    }
}

pub const FLASH: &str = env!("CARGO_BIN_EXE_flash");

/// `flash run`.
pub fn command(place: &Place) -> Command {
    let mut command = Command::new(FLASH);
    command.arg("run").arg(place.at("flash.toml"));
    command
}

/// What it says when it cannot start.
#[track_caller]
pub fn refusal(mut command: Command) -> String {
    let output = command.output().expect("it can be executed");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn big() -> Vec<u8> {
    (0..8_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub struct Running {
    child: Child,
    /// What it says when it has started.
    pub said: Vec<String>,
    errors: PathBuf,
    _out: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(place: &Place) -> Running {
        Running::start_as(place, command(place))
    }

    /// Starts a command that becomes flash, and waits for the last line of what it says then.
    pub fn start_as(place: &Place, mut command: Command) -> Running {
        let errors = place.at("errors");
        let to = File::create(&errors).expect("room");
        let spawned = command.stdout(Stdio::piped()).stderr(to).spawn();
        let mut child = spawned.expect("it can be executed");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = Vec::new();
        let mut line = String::new();
        while !line.starts_with("sandbox: ") {
            line.clear();
            let length = out.read_line(&mut line).expect("text");
            let why = || fs::read_to_string(&errors).unwrap_or_default();
            assert!(length > 0, "it has ended: {}", why());
            said.push(line.trim().to_string());
        }
        Running {
            child,
            said,
            errors,
            _out: out,
        }
    }

    /// The addresses of a kind of line.
    fn all(&self, before: &str) -> Vec<String> {
        let lines = self
            .said
            .iter()
            .filter_map(|line| line.strip_prefix(before));
        lines
            .filter_map(|line| line.split('/').next().map(str::to_string))
            .collect()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.all("serving at http://");
        let parsed = all.iter().filter_map(|text| text.parse().ok());
        parsed.collect()
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    pub fn counters(&self) -> SocketAddr {
        let all = self.all("counters at http://");
        all[0].parse().expect("an address")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    /// The sum of a counter over its labels.
    #[track_caller]
    pub fn count(&self, name: &str) -> u64 {
        let page = get(self.counters(), "/metrics");
        let rows = page.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let values = rows.map(|line| line.rsplit(' ').next().expect("a value"));
        values
            .map(|value| value.parse::<u64>().expect("a number"))
            .sum()
    }

    /// Loads the configuration again, and waits until that is done or refused.
    pub fn reload(&self) {
        let tries =
            || self.count("flash_reloads_total") + self.count("flash_reloads_refused_total");
        let before = tries();
        self.signal(Signal::SIGHUP);
        wait_until("a reload", || tries() > before);
    }

    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).expect("it is there")
    }

    pub fn threads(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        tasks.count()
    }

    pub fn descriptors(&self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs");
        all.count()
    }

    pub fn has_landlock(&self) -> bool {
        self.said.iter().any(|line| line.contains("Landlock: on"))
    }

    /// Ends it, and returns what it has said to standard error.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().expect("a child");
        (status, self.errors())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// The whole answer.
#[track_caller]
pub fn get(address: SocketAddr, target: &str) -> String {
    let mut stream = connect(address);
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
