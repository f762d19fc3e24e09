//! Finds who holds what a futex call waits for, from the data that the C library keeps beside the word.
//!
//! The word alone proves nothing: any program may have such a number there. All related fields must fit,
//! too.

/// The kind of lock that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    PiMutex,
    RobustMutex,
    RwLock,
    /// `pthread_join()`: it is "held" until the thread ends.
    ThreadEnd,
    Flock,
    PosixLock,
}

impl Kind {
    /// The name for people and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::PiMutex => "priority-inheritance mutex",
            Kind::RobustMutex => "robust mutex",
            Kind::RwLock => "rwlock",
            Kind::ThreadEnd => "end of a thread",
            Kind::Flock => "flock",
            Kind::PosixLock => "POSIX file lock",
        }
    }
}

/// What the words in memory show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub kind: Kind,
    /// The holder's thread id, in the waiting process's namespace.
    pub holder: u32,
    /// Whether the holder must be a thread of the same process.
    pub is_private: bool,
    /// Where the lock begins.
    pub address: u64,
}

const FUTEX_PRIVATE: u32 = 128;
const FUTEX_CLOCK_REALTIME: u32 = 256;
const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_LOCK_PI2: u32 = 13;
const FUTEX_TID: u32 = 0x3fff_ffff;

// `pthread_mutex_t` of glibc on x86-64: lock, count, owner, users, kind.
const MUTEX_LOCKED_WITH_WAITERS: u32 = 2;
const KIND_TYPE: u32 = 3;
const KIND_RECURSIVE: u32 = 1;
const KIND_ROBUST: u32 = 16;
const KIND_PI: u32 = 32;
const KIND_SHARED: u32 = 128;
/// Lock elision, on and off.
const KIND_ELISION: u32 = 256 | 512;

/// `pthread_rwlock_t` of glibc on x86-64.
const RWLOCK_BYTES: usize = 56;
const RWLOCK_PHASE: u64 = 8;
const RWLOCK_WRITERS: u64 = 12;
const RWLOCK_IN_WRITE_PHASE: u32 = 1;
const RWLOCK_WRITE_LOCKED: u32 = 2;
const RWLOCK_WORD_IN_USE: u32 = 3;

/// A futex call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Futex {
    pub address: u64,
    pub operation: u32,
    pub value: u32,
    pub has_timeout: bool,
}

impl Futex {
    pub fn of(args: &[u64; 6]) -> Futex {
        Futex {
            address: args[0],
            operation: args[1] as u32,
            value: args[2] as u32,
            has_timeout: args[3] != 0,
        }
    }

    fn command(&self) -> u32 {
        self.operation & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME)
    }

    pub fn is_private(&self) -> bool {
        self.operation & FUTEX_PRIVATE != 0
    }

    fn waits(&self) -> bool {
        matches!(self.command(), FUTEX_WAIT | FUTEX_WAIT_BITSET)
    }

    /// What is held there. `read` reads the process's memory.
    pub fn held(&self, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Held> {
        if matches!(self.command(), FUTEX_LOCK_PI | FUTEX_LOCK_PI2) {
            return self.pi_mutex(read);
        }
        if !self.waits() {
            return None;
        }
        self.mutex(&read)
            .or_else(|| self.rwlock(&read))
            .or_else(|| self.thread_end(&read))
    }

    fn held_by(&self, kind: Kind, holder: u32, address: u64) -> Option<Held> {
        (1..=FUTEX_TID).contains(&holder).then_some(Held {
            kind,
            holder,
            is_private: self.is_private(),
            address,
        })
    }

    fn pi_mutex(&self, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<Held> {
        let [word] = words(self.address, &read)?;
        self.held_by(Kind::PiMutex, word & FUTEX_TID, self.address)
    }

    fn mutex(&self, read: &impl Fn(u64, &mut [u8]) -> bool) -> Option<Held> {
        let [lock, count, owner, users, kind] = words(self.address, read)?;
        let known = KIND_TYPE | KIND_ROBUST | KIND_SHARED | KIND_ELISION;
        let is_robust = kind & KIND_ROBUST != 0;
        let is_recursive = kind & KIND_TYPE == KIND_RECURSIVE;
        // Futex calls for robust mutexes are never private, like the kernel's own at a thread's end.
        let is_shared = is_robust || kind & KIND_SHARED != 0;
        let fits = kind & !known == 0
            && kind & KIND_PI == 0
            && lock == self.value
            && users > 0
            && (count > 0) == is_recursive
            && is_shared != self.is_private();
        if !fits {
            return None;
        }
        if is_robust {
            let is_same = lock & FUTEX_TID == owner;
            let held = self.held_by(Kind::RobustMutex, owner, self.address)?;
            let is_private = kind & KIND_SHARED == 0;
            return is_same.then_some(Held { is_private, ..held });
        }
        let has_waiters = lock == MUTEX_LOCKED_WITH_WAITERS;
        has_waiters.then_some(())?;
        self.held_by(Kind::Mutex, owner, self.address)
    }

    fn rwlock(&self, read: &impl Fn(u64, &mut [u8]) -> bool) -> Option<Held> {
        if self.value != RWLOCK_WORD_IN_USE {
            return None;
        }
        // Readers wait for the phase of the writers to end, writers for the one before them.
        [RWLOCK_PHASE, RWLOCK_WRITERS].iter().find_map(|offset| {
            let lock = self.address.checked_sub(*offset)?;
            let lock_words: [u32; RWLOCK_BYTES / 4] = words(lock, read)?;
            let word = lock_words[*offset as usize / 4];
            let (readers, writer, shared) = (lock_words[0], lock_words[6], lock_words[7]);
            let is_locked = readers & RWLOCK_WRITE_LOCKED != 0;
            let in_phase = *offset == RWLOCK_WRITERS || readers & RWLOCK_IN_WRITE_PHASE != 0;
            let fits = word == self.value
                && is_locked
                && in_phase
                && shared <= 1
                && (shared == 1) != self.is_private()
                && lock_words[12] <= 2;
            fits.then_some(())?;
            self.held_by(Kind::RwLock, writer, lock)
        })
    }

    /// The word is the other thread's id until the kernel clears it at that thread's end.
    fn thread_end(&self, read: &impl Fn(u64, &mut [u8]) -> bool) -> Option<Held> {
        let [word] = words(self.address, read)?;
        let fits = word == self.value && !self.is_private();
        fits.then_some(())?;
        let held = self.held_by(Kind::ThreadEnd, word, self.address)?;
        Some(Held {
            is_private: true,
            ..held
        })
    }
}

fn words<const N: usize>(address: u64, read: &impl Fn(u64, &mut [u8]) -> bool) -> Option<[u32; N]> {
    let mut bytes = vec![0; 4 * N];
    read(address, &mut bytes).then_some(())?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;
    const PRIVATE_WAIT: u32 = FUTEX_WAIT | FUTEX_PRIVATE;

    fn held(operation: u32, value: u32, offset: u64, words: &[u32]) -> Option<Held> {
        let futex = Futex {
            address: AT + offset,
            operation,
            value,
            has_timeout: false,
        };
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        futex.held(|address, bytes| {
            let Some(from) = address.checked_sub(AT).map(|from| from as usize) else {
                return false;
            };
            let found = memory.get(from..from + bytes.len());
            if let Some(found) = found {
                bytes.copy_from_slice(found);
            }
            found.is_some()
        })
    }

    fn holder(operation: u32, value: u32, offset: u64, words: &[u32]) -> Option<(Kind, u32)> {
        held(operation, value, offset, words).map(|held| (held.kind, held.holder))
    }

    #[test]
    fn a_mutex_names_its_owner() {
        let found = holder(PRIVATE_WAIT, 2, 0, &[2, 0, 77, 1, 0]);
        assert_eq!(found, Some((Kind::Mutex, 77)));
        let recursive = holder(PRIVATE_WAIT, 2, 0, &[2, 3, 77, 1, 1]);
        assert_eq!(recursive, Some((Kind::Mutex, 77)));
        let shared = held(FUTEX_WAIT, 2, 0, &[2, 0, 77, 1, 128]).unwrap();
        assert_eq!((shared.holder, shared.is_private), (77, false));
        let timed = FUTEX_WAIT_BITSET | FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME;
        assert!(holder(timed, 2, 0, &[2, 0, 77, 1, 0]).is_some());
    }

    #[test]
    fn what_only_looks_like_a_mutex_has_no_owner() {
        for words in [
            [2, 0, 77, 1, 77],      // no such kind
            [2, 0, 77, 0, 0],       // no thread uses it
            [7, 0, 77, 1, 0],       // no such state
            [2, 3, 77, 1, 0],       // held several times, and not recursive
            [2, 0, 0, 1, 0],        // a plain word
            [2, 0, u32::MAX, 1, 0], // not a thread id
            [2, 0, 77, 1, 128],     // shared between processes, and the call is private
        ] {
            let value = words[0];
            assert_eq!(holder(PRIVATE_WAIT, value, 0, &words), None, "{words:?}");
        }
        assert_eq!(holder(PRIVATE_WAIT, 1, 0, &[2, 0, 77, 1, 0]), None);
        let wake = 1 | FUTEX_PRIVATE;
        assert_eq!(holder(wake, 2, 0, &[2, 0, 77, 1, 0]), None);
        assert_eq!(holder(PRIVATE_WAIT, 2, 0, &[2, 0]), None);
    }

    #[test]
    fn words_with_the_owner_in_them_name_it() {
        let waiters = 0x8000_0000;
        let pi = holder(FUTEX_LOCK_PI | FUTEX_PRIVATE, 0, 0, &[waiters | 42]);
        assert_eq!(pi, Some((Kind::PiMutex, 42)));
        assert_eq!(holder(FUTEX_LOCK_PI2, 0, 0, &[0]), None);
        let word = waiters | 42;
        let robust = held(FUTEX_WAIT, word, 0, &[word, 0, 42, 1, 16]).unwrap();
        assert_eq!((robust.kind, robust.holder), (Kind::RobustMutex, 42));
        assert!(robust.is_private);
        let between = held(FUTEX_WAIT, word, 0, &[word, 0, 42, 1, 16 | 128]).unwrap();
        assert!(!between.is_private);
        assert_eq!(holder(FUTEX_WAIT, word, 0, &[word, 0, 43, 1, 16]), None);
    }

    fn rwlock(readers: u32, phase: u32, writers: u32, writer: u32) -> [u32; 14] {
        let mut words = [0; 14];
        (words[0], words[2], words[3], words[6]) = (readers, phase, writers, writer);
        words
    }

    #[test]
    fn a_rwlock_names_its_writer() {
        let reader_waits = rwlock(3, 3, 1, 55);
        assert_eq!(
            holder(PRIVATE_WAIT, 3, 8, &reader_waits),
            Some((Kind::RwLock, 55))
        );
        let writer_waits = rwlock(3, 1, 3, 55);
        let found = held(PRIVATE_WAIT, 3, 12, &writer_waits).unwrap();
        assert_eq!((found.holder, found.address), (55, AT));
        // Held by readers, of which only the number is known.
        let writer_waits = rwlock(8, 2, 1, 0);
        assert_eq!(holder(PRIVATE_WAIT, 2, 8, &writer_waits), None);
    }

    #[test]
    fn a_join_waits_for_the_thread() {
        let operation = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
        let found = held(operation, 99, 0, &[99, 0, 0, 0, 0]).unwrap();
        assert_eq!((found.kind, found.holder), (Kind::ThreadEnd, 99));
        assert!(found.is_private);
        assert_eq!(holder(operation, 99, 0, &[98, 0, 0, 0, 0]), None);
    }
}
