//! Starts the command so that monitoring can begin exactly at its `execve`.

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The command cannot be started, for a reason that the user can fix.
#[derive(Debug)]
pub struct CannotStart {
    command: String,
    error: io::Error,
}

impl CannotStart {
    fn new(command: &OsStr, error: io::Error) -> CannotStart {
        CannotStart {
            command: command.to_string_lossy().into_owned(),
            error,
        }
    }

    /// 127 if there is no such program, 126 if it cannot be executed.
    pub fn status(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status() {
            127 => write!(f, "{}: no such program", self.command),
            _ => write!(f, "{}: cannot be executed: {}", self.command, self.error),
        }
    }
}

impl std::error::Error for CannotStart {}

/// A child that waits at a gate right before its `execve`.
pub struct Command {
    pub pid: libc::pid_t,
    gate: Option<File>,
    failure: File,
    name: OsString,
}

impl Command {
    /// Forks; the child waits for [`Command::release`].
    pub fn prepare(
        program: &Path,
        argv: &[OsString],
        environment: Vec<(&str, OsString)>,
    ) -> Result<Command> {
        let path = program.as_os_str().as_bytes();
        let path = CString::new(path).context("zero byte in the path")?;
        let mut strings = Vec::new();
        for argument in argv {
            strings.push(CString::new(argument.as_bytes()).context("zero byte in an argument")?);
        }
        let mut pointers: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let mut variables: Vec<(OsString, OsString)> = std::env::vars_os()
            .filter(|(name, _)| environment.iter().all(|(added, _)| name != *added))
            .collect();
        variables.extend(
            environment
                .into_iter()
                .map(|(name, value)| (name.into(), value)),
        );
        let mut lines = Vec::new();
        for (name, value) in variables {
            let line = [name.as_bytes(), b"=", value.as_bytes()].concat();
            lines.push(CString::new(line).context("zero byte in the environment")?);
        }
        let mut line_pointers: Vec<*const libc::c_char> =
            lines.iter().map(|line| line.as_ptr()).collect();
        line_pointers.push(std::ptr::null());

        let (gate_out, gate_in) = pipe()?;
        let (failure_out, failure_in) = pipe()?;
        // SAFETY: the child calls only async-signal-safe
        // functions until it executes the command.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()).context("cannot fork"),
            0 => {
                // SAFETY: as above; the pointers outlive the calls.
                unsafe {
                    libc::close(gate_in.as_raw_fd());
                    // Rust ignores SIGPIPE in debox itself; the command gets the default back.
                    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                    let mut go = 0u8;
                    if libc::read(gate_out.as_raw_fd(), (&raw mut go).cast(), 1) != 1 {
                        libc::_exit(crate::exit::FAILED.into()); // debox has exited
                    }
                    libc::execve(path.as_ptr(), pointers.as_ptr(), line_pointers.as_ptr());
                    let errno = *libc::__errno_location();
                    libc::write(failure_in.as_raw_fd(), (&raw const errno).cast(), 4);
                    libc::_exit(126);
                }
            }
            _ => Ok(Command {
                pid,
                gate: Some(File::from(gate_in)),
                failure: File::from(failure_out),
                name: argv[0].clone(),
            }),
        }
    }

    /// Lets the child execute the command. Returns an error if `execve` fails.
    pub fn release(&mut self) -> Result<()> {
        let mut gate = self.gate.take().expect("a command is released once");
        gate.write_all(&[1])
            .context("the command's process is gone")?;
        let mut errno = [0u8; 4];
        // `execve` closes the other end, so end of file means success.
        if self.failure.read_exact(&mut errno).is_ok() {
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
            self.wait();
            return Err(CannotStart::new(&self.name, error).into());
        }
        Ok(())
    }

    /// The exit status (128+n for signal n) if the command has ended.
    pub fn try_wait(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        let ended = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) };
        (ended == self.pid).then(|| shell_status(status))
    }

    /// Waits for the command and returns its exit status.
    pub fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return crate::exit::FAILED.into();
            }
        }
        shell_status(status)
    }
}

impl Drop for Command {
    /// Waits for the command even if debox fails. A command that was not released ends by itself.
    fn drop(&mut self) {
        self.gate = None;
        self.wait();
    }
}

fn shell_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors; the `OwnedFd`s are their only owners.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error()).context("cannot make a pipe");
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The path that `execvp` would execute. It is resolved beforehand, so the command's first call is
/// its `execve`.
pub fn find(name: &OsStr) -> Result<PathBuf, CannotStart> {
    let not_found = || CannotStart::new(name, io::Error::from(io::ErrorKind::NotFound));
    if name.as_bytes().contains(&b'/') {
        let path = Path::new(name);
        return match path.metadata() {
            Err(error) => Err(CannotStart::new(name, error)),
            Ok(metadata) if metadata.is_dir() => Err(CannotStart::new(
                name,
                io::Error::from_raw_os_error(libc::EISDIR),
            )),
            Ok(_) => Ok(path.to_path_buf()),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut denied = None;
    for directory in std::env::split_paths(&path) {
        let candidate = directory.join(name);
        let Ok(metadata) = candidate.metadata() else {
            continue;
        };
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            return Ok(candidate);
        }
        denied = Some(CannotStart::new(
            name,
            io::Error::from_raw_os_error(libc::EACCES),
        ));
    }
    Err(denied.unwrap_or_else(not_found))
}
