//! Accounts for the memory that the broker has given out, including kernel memory, and limits it.
//!
//! The limit is well below that of the broker's control groups, at which the kernel would kill the broker and
//! with it every session. What a user holds counts until the kernel has freed it.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libbpf_rs::Object;

use super::cgroup;

/// The part of the smallest limit of the broker's control groups that may be given out...
const OF_GROUP: (u64, u64) = (3, 4);
/// ... and the part of the machine's memory, whichever is less.
const OF_MACHINE: (u64, u64) = (1, 4);
/// The part of the limit that one user may get.
const OF_USER: (u64, u64) = (1, 2);
/// A large allocation is refused if it would fill its control group, or the machine, to this part.
const FULL: (u64, u64) = (9, 10);

/// Reserved for connections, symbols and whatever else the broker itself allocates after its start.
const OWN_LATER: u64 = 32 << 20;

/// The number of kinds of sessions whose memory use is remembered.
const SEEN_MAX: usize = 256;

pub struct Account {
    limit: u64,
    /// The source of the limit, in words for people.
    source: String,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    all: u64,
    users: HashMap<u32, u64>,
    /// Memory that loaded sessions took, by their options. Only the last ones are kept, as clients influence
    /// the options.
    seen: HashMap<String, u64>,
}

/// Memory that is in use until this is dropped.
pub struct Share {
    account: Arc<Account>,
    /// `None`: shared by all users.
    user: Option<u32>,
    bytes: u64,
}

impl Account {
    /// Starts with the broker's own memory taken. `asked`: a limit to use instead of the machine's.
    pub fn new(asked: Option<u64>) -> Arc<Account> {
        let (limit, source) = match asked {
            Some(limit) => (limit, "--memory".to_string()),
            None => limit(),
        };
        let account = Arc::new(Account {
            limit,
            source,
            given: Mutex::default(),
        });
        let own = own_memory().unwrap_or(0) + OWN_LATER;
        account.given().all = own;
        account
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory for a user, or for all users together.
    pub fn take(
        self: &Arc<Account>,
        user: Option<u32>,
        what: &str,
        bytes: u64,
    ) -> Result<Share, String> {
        let mut given = self.given();
        if bytes > 0 && given.all.saturating_add(bytes) > self.limit {
            return Err(format!(
                "the broker has no memory left for {what}: it takes about {} MB, and {} of {} MB ({}) \
                 are in use",
                megabytes(bytes),
                megabytes(given.all),
                megabytes(self.limit),
                self.source
            ));
        }
        if let Some(user) = user {
            let most = part(self.limit, OF_USER);
            let has = given.users.entry(user).or_default();
            if bytes > 0 && has.saturating_add(bytes) > most {
                return Err(format!(
                    "this user has reached the limit of the broker's memory: {what} takes about \
                     {} MB, and {} of {} MB are in use",
                    megabytes(bytes),
                    megabytes(*has),
                    megabytes(most)
                ));
            }
            *has += bytes;
        }
        given.all += bytes;
        drop(given);
        Ok(Share {
            account: Arc::clone(self),
            user,
            bytes,
        })
    }

    /// Like `take`, for large allocations: first checks whether the memory is available.
    pub fn take_large(
        self: &Arc<Account>,
        user: Option<u32>,
        what: &str,
        bytes: u64,
    ) -> Result<Share, String> {
        let share = self.take(user, what, bytes)?;
        for level in cgroup::limited() {
            let used = level.used().unwrap_or(0);
            if used.saturating_add(bytes) > part(level.limit, FULL) {
                return Err(format!(
                    "there is no memory left for {what}: it takes about {} MB, and {level} has {} of {} MB \
                     in use",
                    megabytes(bytes),
                    megabytes(used),
                    megabytes(level.limit)
                ));
            }
        }
        match cgroup::of_machine() {
            Some((_, free)) if free < bytes.saturating_mul(2) => Err(format!(
                "there is no memory left for {what}: it takes about {} MB, and the machine has {} MB",
                megabytes(bytes),
                megabytes(free)
            )),
            _ => Ok(share),
        }
    }

    /// The memory that a session loaded for the same wish took; otherwise `usual`.
    pub fn estimate(&self, wish: &str, usual: u64) -> u64 {
        self.given().seen.get(wish).copied().unwrap_or(usual)
    }

    pub fn learn(&self, wish: &str, bytes: u64) {
        let mut given = self.given();
        if given.seen.len() >= SEEN_MAX && !given.seen.contains_key(wish) {
            given.seen.clear();
        }
        given.seen.insert(wish.to_string(), bytes);
    }

    /// The memory given out, in bytes.
    pub fn given_out(&self) -> u64 {
        self.given().all
    }
}

impl Share {
    /// Changes the share to the size that it turned out to be.
    pub fn set(&mut self, bytes: u64) {
        let mut given = self.account.given();
        given.all = given.all - self.bytes + bytes;
        if let Some(user) = self.user {
            *given.users.entry(user).or_default() += bytes;
            remove(&mut given.users, user, self.bytes);
        }
        drop(given);
        self.bytes = bytes;
    }

    /// Splits a part off as a share of its own.
    pub fn split(&mut self, bytes: u64) -> Share {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Share {
            account: Arc::clone(&self.account),
            user: self.user,
            bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut given = self.account.given();
        given.all -= self.bytes;
        if let Some(user) = self.user {
            remove(&mut given.users, user, self.bytes);
        }
    }
}

fn remove(users: &mut HashMap<u32, u64>, user: u32, bytes: u64) {
    if let Some(has) = users.get_mut(&user) {
        *has -= bytes;
        if *has == 0 {
            users.remove(&user);
        }
    }
}

fn part(of: u64, (part, whole): (u64, u64)) -> u64 {
    of / whole * part
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// The default limit, and its source.
fn limit() -> (u64, String) {
    let machine = cgroup::of_machine().map_or(1 << 30, |(all, _)| part(all, OF_MACHINE));
    let smallest = cgroup::limited()
        .into_iter()
        .min_by_key(|level| level.limit);
    match smallest {
        Some(level) if part(level.limit, OF_GROUP) < machine => (
            part(level.limit, OF_GROUP),
            format!("three quarters of the limit of {level}"),
        ),
        _ => (machine, "a quarter of the machine's memory".to_string()),
    }
}

/// This process's anonymous memory.
fn own_memory() -> Option<u64> {
    let status = procfs::process::Process::myself().ok()?.status().ok()?;
    Some(status.rssanon? * 1024)
}

/// The kernel memory of a session's tables and programs, by the kernel's account.
pub fn kernel_memory(object: &Object) -> u64 {
    let maps = object.maps().map(|map| memlock(map.as_fd()));
    let programs = object.progs().map(|program| memlock(program.as_fd()));
    maps.chain(programs).flatten().sum()
}

fn memlock(fd: BorrowedFd) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Arc<Account> {
        let account = Account::new(Some(1000 << 20));
        account.given().all = 0;
        account
    }

    #[test]
    fn what_is_dropped_can_be_given_again() {
        let account = account();
        let mut first = account.take(Some(1), "a run", 300 << 20).unwrap();
        assert!(account.take(Some(1), "a run", 300 << 20).is_err());
        first.set(200 << 20);
        let second = account.take(Some(1), "a run", 300 << 20).unwrap();
        drop((first, second));
        assert_eq!(account.given_out(), 0);
        assert!(account.given().users.is_empty());
    }

    #[test]
    fn a_part_that_is_still_held_counts_for_its_user() {
        let account = account();
        let mut run = account.take(Some(1), "a run", 300 << 20).unwrap();
        let held = run.split(200 << 20);
        drop(run);
        assert_eq!(account.given_out(), 200 << 20);
        assert!(account.take(Some(1), "a run", 400 << 20).is_err());
        drop(held);
        assert!(account.take(Some(1), "a run", 400 << 20).is_ok());
    }

    #[test]
    fn wishes_that_are_remembered_are_few() {
        let account = account();
        for number in 0..10_000 {
            account.learn(&format!("slower than {number} ns"), number);
        }
        assert!(account.given().seen.len() <= SEEN_MAX);
        assert_eq!(account.estimate("slower than 9999 ns", 7), 9999);
        assert_eq!(account.estimate("slower than 1 ns", 7), 7);
    }

    #[test]
    fn a_refusal_says_what_and_how_much() {
        let account = account();
        let said = account.take(Some(1), "a run", 600 << 20).err().unwrap();
        for words in [
            "reached the limit",
            "a run takes about 630 MB",
            "0 of 525 MB",
        ] {
            assert!(said.contains(words), "{said}");
        }
        let shares = [1, 2].map(|user| account.take(Some(user), "a run", 480 << 20).unwrap());
        let said = account.take(Some(3), "a run", 100 << 20).err().unwrap();
        for words in ["no memory left for a run", "1007 of 1049 MB (--memory)"] {
            assert!(said.contains(words), "{said}");
        }
        drop(shares);
        // More memory than the machine has is refused, although the account would allow it.
        let account = Account::new(Some(u64::MAX));
        let (all, _) = cgroup::of_machine().unwrap();
        let said = account.take_large(None, "a run", all).err().unwrap();
        assert!(said.contains("no memory left"), "{said}");
    }
}
