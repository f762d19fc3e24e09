//! Starts, confines and stops servers, as defined in a file.

mod note;

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::confine::{self, Group, Limits};
use crate::fileset::{files_of, FileSet};
use crate::processes::{self, Known};
use crate::{leftover, listener, signals, sys};

/// The definition of a server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub name: String,
    #[serde(default)]
    pub about: String,
    pub start: Vec<String>,
    #[serde(default)]
    stop: Stop,
    #[serde(default)]
    config: BTreeMap<String, String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Default values for `{NAME}`.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Stop {
    #[default]
    Term,
    Int,
    Quit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Vec<Server>,
}

/// The servers defined in a file, and those that come with latlab.
pub fn known(file: Option<&Path>) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    if let Some(file) = file {
        let cannot = || format!("cannot read servers from {}", file.display());
        let bytes = kit_files::input::read(file)?;
        let text = String::from_utf8(bytes).with_context(cannot)?;
        servers = read(&text).with_context(cannot)?;
    }
    servers.extend(read(include_str!("../servers.toml")).context("latlab's own servers")?);
    Ok(servers)
}

fn read(text: &str) -> Result<Vec<Server>> {
    let file: File = toml::from_str(text)?;
    for server in &file.server {
        ensure!(
            !server.start.is_empty(),
            "{} has no program to start",
            server.name
        );
        let plain = |name: &str| {
            let ok = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            !name.is_empty() && !name.starts_with('.') && name.bytes().all(ok)
        };
        ensure!(
            plain(&server.name),
            "{:?} cannot be a server's name",
            server.name
        );
        for name in server.config.keys() {
            ensure!(
                plain(name),
                "{name:?} cannot be the name of {}'s file",
                server.name
            );
        }
    }
    Ok(file.server)
}

/// What a server serves, and its limits.
#[derive(Debug, Clone)]
pub struct Conditions {
    pub files: PathBuf,
    pub limits: Limits,
    /// The `latlab-dynamic` program, if there are dynamic requests.
    pub dynamic: Option<PathBuf>,
    /// Parameters that differ from their defaults.
    pub parameters: BTreeMap<String, String>,
    pub recorder: Option<Recorder>,
}

/// Lets DeBox record the server's calls.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// `debox`
    pub program: PathBuf,
    pub history: PathBuf,
}

/// A running server. Dropping the value stops it, and undoes everything that was set up for it.
pub struct Running {
    server: Option<Child>,
    dynamic: Option<Child>,
    stop: Stop,
    group: Group,
    pub port: u16,
    /// The mark in the environment of all its processes.
    mark: String,
    directory: tempfile::TempDir,
    /// Lock on the directory, held as long as the server runs.
    _lock: Option<fs::File>,
}

/// Prefix of servers' directories; the number of the process that made them follows.
const PREFIX: &str = "latlab-server-";
/// The prefix for this process. `remove_left` finds its directories if it was killed.
pub fn directory_prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

const LOGS: [&str; 3] = ["server.log", "dynamic.log", "error.log"];

/// Watches a server during a run.
#[derive(Debug, Clone)]
pub struct Watch {
    name: String,
    pid: u32,
    directory: PathBuf,
    memory_counts: Vec<(PathBuf, u64)>,
}

impl Watch {
    /// A sentence if the server has ended.
    pub fn ended(&self) -> Option<String> {
        let how = sys::how_ended(self.pid)?;
        let said = said(&self.directory);
        let last = said.lines().next_back().map_or(String::new(), |line| {
            let short: String = line.chars().take(200).collect();
            format!("; its last output: {short}")
        });
        Some(format!(
            "{} was not there to the end: {how}{last}",
            self.name
        ))
    }

    /// A sentence if the kernel has killed processes of the server since the watch began, for lack of
    /// memory.
    pub fn killed_for_memory(&self) -> Option<String> {
        let counts = self.memory_counts.iter();
        let killed: u64 = counts
            .map(|(file, before)| confine::killed_for_memory(file).saturating_sub(*before))
            .sum();
        (killed > 0).then(|| {
            format!(
                "the kernel killed {killed} processes of {}, whose memory (--memory) did not suffice",
                self.name
            )
        })
    }
}

/// The server's output.
fn said(directory: &Path) -> String {
    let logs = LOGS.map(|log| {
        let bytes = fs::read(directory.join(log)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    logs.concat().trim().to_string()
}

/// Removes the directories of killed latlabs' servers, and ends those that still run: a server normally
/// ends with its latlab, unless it hangs. Returns sentences about what was done.
pub fn remove_left() -> Vec<String> {
    let left = leftover::abandoned(&std::env::temp_dir(), &[PREFIX], Path::to_path_buf);
    left.iter()
        .flat_map(|directory| note::clear(directory))
        .collect()
}

/// Stands for latlab's own executable.
const OWN: &str = "{latlab}";
/// Precedes a program that is installed, or built, together with latlab.
const BESIDE: &str = "{beside}/";
/// A recorder first loads its probes, which takes a while on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in one of the directories of programs.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    // Servers are in administrators' directories, which are not in every user's PATH.
    let mut places = path
        .split(':')
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"]);
    places.find_map(|place| {
        let program = Path::new(place).join(name);
        program.is_file().then_some(program)
    })
}

impl Server {
    pub fn program(&self) -> Option<PathBuf> {
        let name = self.start.first()?;
        if name == OWN {
            return std::env::current_exe().ok();
        }
        if let Some(name) = name.strip_prefix(BESIDE) {
            let own = std::env::current_exe().ok()?;
            let program = own.with_file_name(name);
            return match program.is_file() {
                true => Some(program),
                false => in_path(name),
            };
        }
        if name.contains('/') {
            return Path::new(name).exists().then(|| PathBuf::from(name));
        }
        in_path(name)
    }

    /// A sentence if the server's program is missing.
    pub fn missing(&self) -> Option<String> {
        let name = self.start.first().map_or("", String::as_str);
        let name = name.strip_prefix(BESIDE).unwrap_or(name);
        match self.program() {
            Some(_) => None,
            None => Some(format!("{}: {name} is not installed", self.name)),
        }
    }

    /// Parameters, with the given values instead of the defaults.
    fn parameters(&self, others: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
        let mut parameters = self.parameters.clone();
        for (name, value) in others {
            let Some(known) = parameters.get_mut(name) else {
                let names: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
                bail!(
                    "{} has no parameter {name}{}",
                    self.name,
                    match names.is_empty() {
                        true => String::new(),
                        false => format!("; it has {}", names.join(", ")),
                    }
                );
            };
            known.clone_from(value);
        }
        Ok(parameters)
    }

    pub fn start(&self, conditions: &Conditions) -> Result<Running> {
        let missing = || self.missing().unwrap_or_default();
        let program = self.program().with_context(missing)?;
        leftover::say(&remove_left());
        let directory = tempfile::Builder::new()
            .prefix(&directory_prefix())
            .tempdir()?;
        let lock = fs::File::open(directory.path())?;
        let _ = lock.try_lock();
        let mark = note::mark(directory.path());
        // Workers run as another user.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let socket = directory.path().join("dynamic.sock");
        let files = conditions
            .files
            .canonicalize()
            .with_context(|| format!("cannot find the files at {}", conditions.files.display()))?;
        let parameters = self.parameters(&conditions.parameters)?;
        let fill = |text: &str| {
            let mut text = text
                .replace("{dir}", &directory.path().display().to_string())
                .replace("{files}", &files.display().to_string())
                .replace("{port}", &port.to_string())
                .replace("{dynamic}", &socket.display().to_string());
            for (name, value) in &parameters {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            text
        };
        for (name, text) in &self.config {
            fs::write(directory.path().join(name), fill(text))
                .with_context(|| format!("cannot write {name} of {}", self.name))?;
        }
        let group = Group::new(&port.to_string(), conditions.limits)?;
        let spawn = |recorder: Option<&Recorder>,
                     program: &Path,
                     arguments: &[String],
                     log: &str|
         -> Result<Child> {
            let log = fs::File::create(directory.path().join(log))?;
            // The shell joins the control groups, and then executes the server.
            let mut script = String::new();
            for entrance in group.entrances() {
                script.push_str(&format!("echo $$ >'{}' || exit 126; ", entrance.display()));
            }
            script.push_str("exec \"$@\"");
            // The recorder is not in the groups, so its resources do not count for the server.
            let mut command = match recorder {
                None => Command::new("/bin/sh"),
                Some(recorder) => {
                    let mut command = Command::new(&recorder.program);
                    command.args(["record", "-o"]).arg(&recorder.history);
                    command.args(["--", "/bin/sh"]);
                    command
                }
            };
            command
                .args(["-c", &script, "sh"])
                .arg(program)
                .args(arguments)
                .envs(
                    self.environment
                        .iter()
                        .map(|(name, value)| (name, fill(value))),
                )
                .env(processes::MARK, &mark)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                // Apache signals its whole process group, so it gets its own.
                .process_group(0);
            sys::end_with_this_thread(&mut command);
            command
                .spawn()
                .with_context(|| format!("cannot start {}", program.display()))
        };
        let mut running = Running {
            server: None,
            dynamic: None,
            stop: self.stop,
            group: Group::none(),
            port,
            mark: mark.clone(),
            directory: tempfile::Builder::new()
                .prefix(&directory_prefix())
                .tempdir()?,
            _lock: Some(lock),
        };
        if let Some(dynamic) = &conditions.dynamic {
            let arguments = ["--files", &fill("{files}"), "--listen", &fill("{dynamic}")];
            let arguments = arguments.map(String::from);
            running.dynamic = Some(spawn(None, dynamic, &arguments, "dynamic.log")?);
        }
        let arguments: Vec<String> = self.start[1..].iter().map(|word| fill(word)).collect();
        let recorder = conditions.recorder.as_ref();
        running.server = Some(spawn(recorder, &program, &arguments, "server.log")?);
        running.group = group;
        running.directory = directory;
        running.note(&self.name)?;
        running.wait(
            &self.name,
            conditions.dynamic.as_ref().map(|_| socket.as_path()),
        )?;
        // Now including the workers, some of which overwrite their environment.
        running.note(&self.name)?;
        Ok(running)
    }
}

impl Running {
    pub fn watch(&self, name: &str) -> Option<Watch> {
        let counts = self.group.memory_counts().into_iter();
        Some(Watch {
            name: name.to_string(),
            pid: self.server.as_ref()?.id(),
            directory: self.directory.path().to_path_buf(),
            memory_counts: counts
                .map(|file| (file.clone(), confine::killed_for_memory(&file)))
                .collect(),
        })
    }

    /// Notes the processes, so that they can be found if latlab is killed.
    fn note(&self, name: &str) -> Result<()> {
        let children = [&self.server, &self.dynamic].into_iter().flatten();
        let leaders: Vec<u32> = children.map(Child::id).collect();
        note::write(self.directory.path(), name, &leaders)
    }

    /// Waits until the server listens.
    fn wait(&mut self, name: &str, socket: Option<&Path>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            signals::check()?;
            let children = [&mut self.server, &mut self.dynamic];
            let ended = children
                .into_iter()
                .flatten()
                .any(|child| !matches!(child.try_wait(), Ok(None)));
            let listens = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if !ended && listens && socket.is_none_or(Path::exists) {
                return self.check_listener(name);
            }
            if ended || Instant::now() > deadline {
                bail!("{name} does not come up: {}", said(self.directory.path()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Running {
    /// Another process may have taken the port after latlab chose it, before the server listened on it.
    fn check_listener(&self, name: &str) -> Result<()> {
        let group = self.server.as_ref().map_or(0, Child::id);
        if let Some(other) = listener::of_others(self.port, group) {
            bail!(
                "{name} does not come up: port {}, which was free, is in use by {other} now; try again",
                self.port
            );
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let signal = match self.stop {
            Stop::Term => libc::SIGTERM,
            Stop::Int => libc::SIGINT,
            Stop::Quit => libc::SIGQUIT,
        };
        for (child, signal) in [
            (&mut self.server, signal),
            (&mut self.dynamic, libc::SIGTERM),
        ] {
            let Some(child) = child else {
                continue;
            };
            sys::signal(child.id(), signal);
            let deadline = Instant::now() + PATIENCE;
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    // The time to end by itself is over.
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            sys::kill_group(child.id());
        }
        // Workers whose master has ended, and processes that have left its process group.
        self.group.kill();
        let marked = Known {
            mark: &self.mark,
            ..Known::default()
        };
        processes::end(&marked, Duration::ZERO);
    }
}

/// Drops all files of a set from the page cache, so that they are read from the disk again.
pub fn forget(files: &Path, set: FileSet) -> Result<()> {
    for directory in 0..set.directories {
        signals::check()?;
        for file in files_of(directory) {
            let path = files.join(file.path());
            let opened =
                fs::File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            // Dirty pages cannot be dropped.
            opened.sync_data()?;
            sys::forget_pages(&opened);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_that_come_along_can_be_read() {
        let servers = known(None).unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        for name in [
            "nginx",
            "nginx-tuned",
            "apache-prefork",
            "apache-event",
            "lighttpd",
            "h2o",
            "caddy",
            "flash",
            "programmed",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn parameters_have_the_file_s_values_or_others() {
        let nginx = &known(None).unwrap()[0];
        let four = BTreeMap::from([("workers".to_string(), "4".to_string())]);
        assert_eq!(
            nginx.parameters(&BTreeMap::new()).unwrap()["workers"],
            "auto"
        );
        assert_eq!(nginx.parameters(&four).unwrap()["workers"], "4");
        let wrong = BTreeMap::from([("wrokers".to_string(), "4".to_string())]);
        let error = nginx.parameters(&wrong).unwrap_err().to_string();
        assert_eq!(error, "nginx has no parameter wrokers; it has workers");
    }

    #[test]
    fn a_program_beside_latlab_is_found_there_or_in_path() {
        let own = std::env::current_exe().unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        let started = |program: &str| {
            let text = format!("[[server]]\nname = 'a'\nstart = ['{program}']\n");
            read(&text).unwrap().remove(0)
        };
        let beside = started(&format!("{{beside}}/{name}"));
        assert_eq!((beside.program(), beside.missing()), (Some(own), None));
        let shell = started("{beside}/sh").program().unwrap();
        assert!(shell.ends_with("sh") && shell.is_file());
        let none = started("{beside}/no-such-server");
        assert_eq!(none.program(), None);
        assert_eq!(
            none.missing().unwrap(),
            "a: no-such-server is not installed"
        );
    }

    #[test]
    fn wrong_files_are_refused() {
        assert!(read("[[server]]\nname = 'a'\n").is_err());
        assert!(read("[[server]]\nname = 'a'\nstart = []\n").is_err());
        assert!(read("[[server]]\nname = '../a'\nstart = ['x']\n").is_err());
        let outside = "[[server]]\nname = 'a'\nstart = ['x']\nconfig = { '../b' = '' }\n";
        assert!(read(outside).is_err());
        assert!(read("[[server]]\nname = 'a'\nstart = ['x']\nstop = 'NEVER'\n").is_err());
        assert!(read("[[server]]\nname = 'a'\nstart = ['x']\nstop = 'QUIT'\n").is_ok());
    }
}
