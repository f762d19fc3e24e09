// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes. A sample's process has one thread when it forks.

use std::ffi::CString;
use std::io;
use std::path::Path;

use crate::benchmark::{Available, Failure};

/// Binds the calling thread to a CPU.
pub fn bind_to_cpu(cpu: u32) -> io::Result<()> {
    // SAFETY: all fields may be zero, and CPU_SET does not write beyond the set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu as usize >= libc::CPU_SETSIZE as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        libc::CPU_SET(cpu as usize, &mut set);
        set
    };
    // SAFETY: the kernel reads the set.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs to which the calling thread is bound; none if the kernel does not say.
pub fn affinity() -> Vec<u32> {
    // SAFETY: all fields may be zero; the kernel writes no more than the set, and CPU_ISSET does not read beyond it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        let all = 0..libc::CPU_SETSIZE as u32;
        all.filter(|cpu| libc::CPU_ISSET(*cpu as usize, &set))
            .collect()
    }
}

/// `getppid`, as programs call it: gVisor makes calls faster whose number stands right before them, and those of `syscall` do not.
/// No C library remembers the answer.
#[inline(always)]
pub fn ppid() -> i64 {
    // SAFETY: no memory is passed.
    i64::from(unsafe { libc::getppid() })
}

/// A second process, which ends when this is dropped, or when its parent ends.
#[derive(Debug)]
pub struct Peer(libc::pid_t);

impl Peer {
    /// Runs `run` in a new process on this CPU. What it owns is the new process's alone.
    pub fn start(
        cpu: Option<u32>,
        run: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Peer, Failure> {
        // SAFETY: the process has one thread, so the child may do whatever it likes.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no memory is passed.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                if let Some(cpu) = cpu {
                    let _ = bind_to_cpu(cpu);
                }
                let status = i32::from(run().is_err());
                // SAFETY: ends the process without the parent's handlers.
                unsafe { libc::_exit(status) }
            }
            -1 => Err(io::Error::last_os_error()).available("fork"),
            pid => Ok(Peer(pid)),
        }
    }

    /// Waits until `run` has ended.
    ///
    /// # Errors
    ///
    /// It failed, or the process was ended.
    pub fn end(self) -> Result<(), Failure> {
        let pid = self.0;
        // Once it has been waited for, its number may be another process's.
        std::mem::forget(self);
        ended_with(pid, 0)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: it is this process's child, and has not been waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        let _ = wait(self.0);
    }
}

fn wait(pid: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes the status.
        match unsafe { libc::waitpid(pid, &mut status, 0) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(status),
        }
    }
}

/// The exit status that shows that the child ran.
const RAN: libc::c_int = 7;

/// A child that ends at once.
pub fn fork_and_wait() -> Result<(), Failure> {
    // SAFETY: the child only ends.
    match unsafe { libc::fork() } {
        // SAFETY: as above.
        0 => unsafe { libc::_exit(RAN) },
        -1 => Err(io::Error::last_os_error()).available("fork"),
        pid => ended_with(pid, RAN),
    }
}

fn ended_with(pid: libc::pid_t, wanted: libc::c_int) -> Result<(), Failure> {
    let status = wait(pid).available("wait for a child")?;
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == wanted {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "a child ended with status {status:#x} and not {wanted}"
        ))),
    }
}

/// A program with its arguments, and the exit status that shows that it ran.
#[derive(Debug)]
pub struct Program {
    arguments: Vec<CString>,
    wanted: libc::c_int,
}

/// A null pointer after the words, as `execve` wants it.
fn pointers(words: &[CString]) -> Vec<*mut libc::c_char> {
    let own = words.iter().map(|word| word.as_ptr().cast_mut());
    own.chain([std::ptr::null_mut()]).collect()
}

impl Program {
    pub fn new(path: &Path, arguments: &[&str], wanted: i32) -> Result<Program, Failure> {
        let words = std::iter::once(path.as_os_str().as_encoded_bytes());
        let words = words.chain(arguments.iter().map(|word| word.as_bytes()));
        let arguments: Result<Vec<CString>, _> = words.map(CString::new).collect();
        Ok(Program {
            arguments: arguments
                .map_err(io::Error::other)
                .available("name a program")?,
            wanted,
        })
    }

    /// `fork`, `execve` with an empty environment, `waitpid`.
    pub fn run(&self) -> Result<(), Failure> {
        let pointers = pointers(&self.arguments);
        let environment = [std::ptr::null()];
        // SAFETY: the child calls execve, whose arguments live long enough, or ends.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe {
                libc::execve(pointers[0], pointers.as_ptr().cast(), environment.as_ptr());
                libc::_exit(126)
            },
            -1 => Err(io::Error::last_os_error()).available("fork"),
            pid => ended_with(pid, self.wanted),
        }
    }

    /// `posix_spawn` with an empty environment, `waitpid`.
    pub fn spawn(&self) -> Result<(), Failure> {
        let pointers = pointers(&self.arguments);
        let environment = [std::ptr::null_mut()];
        let mut pid = 0;
        // SAFETY: the texts end with zeros, the lists with null pointers, and all live long enough.
        let error = unsafe {
            libc::posix_spawn(
                &mut pid,
                pointers[0],
                std::ptr::null(),
                std::ptr::null(),
                pointers.as_ptr(),
                environment.as_ptr(),
            )
        };
        match error {
            0 => ended_with(pid, self.wanted),
            error => Err(io::Error::from_raw_os_error(error)).available("posix_spawn"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_run_and_its_status_checked() {
        let shell = Path::new("/bin/sh");
        let seven = Program::new(shell, &["-c", "exit 7"], 7).expect("a program");
        assert_eq!(seven.run(), Ok(()));
        assert_eq!(seven.spawn(), Ok(()));
        let other = Program::new(shell, &["-c", "exit 8"], 7).expect("a program");
        assert!(matches!(other.run(), Err(Failure::Wrong(_))));
        let none = Program::new(Path::new("/nonexistent"), &[], 0).expect("a program");
        assert!(none.run().is_err() && none.spawn().is_err());
        assert_eq!(fork_and_wait(), Ok(()));
    }

    #[test]
    fn a_second_process_says_how_it_ended() {
        let start = |run: fn() -> Result<(), Failure>| Peer::start(None, run).expect("a process");
        assert_eq!(start(|| Ok(())).end(), Ok(()));
        let failed = start(|| Err(Failure::Wrong("it was".to_string()))).end();
        assert!(matches!(failed, Err(Failure::Wrong(_))));
    }

    #[test]
    fn a_process_is_bound_to_a_cpu_that_exists() {
        assert!(bind_to_cpu(u32::MAX).is_err());
        assert!(bind_to_cpu(1023).is_err());
    }
}
