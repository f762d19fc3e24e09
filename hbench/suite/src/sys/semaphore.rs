// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphores of System V.

use std::io;

/// A set of two semaphores, both 0 at first. The kernel keeps such a set until it is removed, whatever becomes of its
/// processes, and has no way to remove it beforehand, as there is for shared memory. So it is made in a namespace of this
/// process and its children, which ends with the last of them even if they are killed.
#[derive(Debug)]
pub struct Semaphores(libc::c_int);

impl Semaphores {
    /// # Errors
    ///
    /// The kernel allows no namespace of its own to this process, or no semaphores.
    pub fn new() -> io::Result<Semaphores> {
        own_namespace()?;
        // SAFETY: no memory is passed.
        match unsafe { libc::semget(libc::IPC_PRIVATE, 2, libc::IPC_CREAT | 0o600) } {
            -1 => Err(io::Error::last_os_error()),
            // The kernel sets new semaphores to 0.
            set => Ok(Semaphores(set)),
        }
    }

    /// Waits until the semaphore is greater than 0, takes one from it, and adds one to the other. Both happen at once.
    #[inline(always)]
    pub fn take_and_give(&self, take: u16, give: u16) -> io::Result<()> {
        self.operate(&mut [change(take, -1), change(give, 1)])
    }

    pub fn give(&self, semaphore: u16) -> io::Result<()> {
        self.operate(&mut [change(semaphore, 1)])
    }

    fn operate(&self, operations: &mut [libc::sembuf]) -> io::Result<()> {
        // SAFETY: the kernel reads so many operations.
        match unsafe { libc::semop(self.0, operations.as_mut_ptr(), operations.len()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        // SAFETY: no memory is passed.
        unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
    }
}

fn change(semaphore: u16, by: i16) -> libc::sembuf {
    libc::sembuf {
        sem_num: semaphore,
        sem_op: by,
        sem_flg: 0,
    }
}

fn own_namespace() -> io::Result<()> {
    // Without privilege, a user may have a namespace for it in one of users.
    for flags in [libc::CLONE_NEWIPC, libc::CLONE_NEWUSER | libc::CLONE_NEWIPC] {
        // SAFETY: no memory is passed.
        if unsafe { libc::unshare(flags) } == 0 {
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}
