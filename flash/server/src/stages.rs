// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history of Flash (Ruan 2005, 2.5 and 3.5) as strategies of one server: how a loop opens a file, how it decides
//! what is in memory, how it sends, how scripts are started, and who sends the answers of applications. A stage is one
//! combination of these.

pub mod command;
mod loop_state;
mod pieces;

pub use loop_state::LoopState;

/// How a file is opened, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// A helper opens the name, so that the kernel has it in memory, and the loop opens it again. A name that the loop has
    /// seen before it opens at once.
    Repeated,
    /// A helper opens the name and passes the descriptor.
    Passed,
    /// The loop opens what the kernel's caches have whole; a helper opens the rest and passes the descriptor.
    Cached,
}

/// How it is decided whether bytes are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// The file is mapped, and `mincore` tells.
    Mincore,
    /// What was brought or sent a short time ago is taken to be there.
    Assumed,
    /// The call that reads says that it would have to wait.
    Reported,
    /// `cachestat` tells, or the call that reads.
    Told,
}

/// How bytes of files are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// From the mapping, together with the head.
    Writev,
    Sendfile,
    /// Copied, together with the head.
    Copied,
    /// Copied if they are few, else by `sendfile`.
    BySize,
}

/// How scripts (CGI) are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starting {
    /// The loop forks the server.
    Forks,
    /// A small process forks.
    Helper,
}

/// How the answer of an application reaches its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// The loop reads it from the application and sends it.
    Relayed,
    /// The application writes it to the client's socket.
    Direct,
}

/// A server of the history, or today's.
#[derive(Debug)]
pub struct Stage {
    pub name: &'static str,
    /// Sections of the thesis.
    pub sections: &'static str,
    /// The steps of Figure 2.8 that it is.
    pub steps: &'static str,
    pub does: &'static str,
    /// Of the stage before it.
    pub removes: &'static str,
    /// Which call of a loop can wait for a disk.
    pub waits: &'static str,
    /// The calls that the guard can find in a loop.
    pub calls: &'static [&'static str],
    pub opening: Opening,
    pub residency: Residency,
    pub delivery: Delivery,
    pub starting: Starting,
    pub answering: Answering,
}

/// In the order of the history.
pub static STAGES: [Stage; 8] = [
    Stage {
        name: "original",
        sections: "2.4, 2.5.1",
        steps: "1",
        does: "Maps files, asks mincore what is in memory, and sends by writev from the mapping; helpers load names and \
               bytes, and the loop opens the name again.",
        removes: "nothing: it is the first.",
        waits: "openat2, if a name that the loop knows is not in memory any more; writev, if a page is taken away \
                after mincore, or mincore may not tell.",
        calls: &["openat2", "writev"],
        opening: Opening::Repeated,
        residency: Residency::Mincore,
        delivery: Delivery::Writev,
        starting: Starting::Forks,
        answering: Answering::Relayed,
    },
    Stage {
        name: "sendfile",
        sections: "2.5.1",
        steps: "3",
        does: "Sends by sendfile from descriptors that stay open; mincore on the mapped file still decides.",
        removes: "the copy of all bytes into the socket.",
        waits: "openat2, as before; sendfile in place of writev.",
        calls: &["openat2", "sendfile"],
        opening: Opening::Repeated,
        residency: Residency::Mincore,
        delivery: Delivery::Sendfile,
        starting: Starting::Forks,
        answering: Answering::Relayed,
    },
    Stage {
        name: "fd-passing",
        sections: "2.5.2, 2.5.3, 3.5.2",
        steps: "4",
        does: "Helpers pass the open descriptor, and the loop opens nothing.",
        removes: "the waits for names, in openat2.",
        waits: "sendfile, if a page is taken away after mincore, or mincore may not tell.",
        calls: &["sendfile"],
        opening: Opening::Passed,
        residency: Residency::Mincore,
        delivery: Delivery::Sendfile,
        starting: Starting::Forks,
        answering: Answering::Relayed,
    },
    Stage {
        name: "fork-helper",
        sections: "2.5.4",
        steps: "5",
        does: "A small process starts scripts; the loop does not copy the server for each.",
        removes: "the copy of the whole server for each script.",
        waits: "sendfile, as before. A fork takes processor time and does not sleep, so a recording shows it and the \
                guard does not.",
        calls: &["sendfile"],
        opening: Opening::Passed,
        residency: Residency::Mincore,
        delivery: Delivery::Sendfile,
        starting: Starting::Helper,
        answering: Answering::Relayed,
    },
    Stage {
        name: "no-mmap",
        sections: "2.5.4, 3.5.2",
        steps: "6",
        does: "Maps nothing: parts of files that were used a short time ago are taken to be in memory.",
        removes: "the cost of mmap, mincore and munmap; it lets sendfile wait again, also for the owner of the files.",
        waits: "sendfile, whenever such a part is not in memory any more.",
        calls: &["sendfile"],
        opening: Opening::Passed,
        residency: Residency::Assumed,
        delivery: Delivery::Sendfile,
        starting: Starting::Helper,
        answering: Answering::Relayed,
    },
    Stage {
        name: "direct-cgi",
        sections: "2.5.5",
        steps: "7",
        does: "Applications write their answers to the client's socket; the loop passes them the socket.",
        removes: "the loop's reading of each answer from the application, and its sending.",
        waits: "sendfile, as before. What is removed is processor time, which a recording shows and the guard does not.",
        calls: &["sendfile"],
        opening: Opening::Passed,
        residency: Residency::Assumed,
        delivery: Delivery::Sendfile,
        starting: Starting::Helper,
        answering: Answering::Direct,
    },
    Stage {
        name: "new-sendfile",
        sections: "2.5.6, 3.5.2",
        steps: "8",
        does: "The call that takes the bytes says that it would have to wait, and head and bytes go out together. Linux has \
               no such sendfile, so this is preadv2(RWF_NOWAIT) and one sendmsg.",
        removes: "the waits in sendfile.",
        waits: "none.",
        calls: &[],
        opening: Opening::Passed,
        residency: Residency::Reported,
        delivery: Delivery::Copied,
        starting: Starting::Helper,
        answering: Answering::Direct,
    },
    Stage {
        name: "today",
        sections: "none",
        steps: "none",
        does: "The loop opens what the kernel has in memory (RESOLVE_CACHED); cachestat decides for large files, which \
               sendfile sends, and RWF_NOWAIT for small ones.",
        removes: "the helpers' work for names that are in memory, and the copy of large files.",
        waits: "none; sendfile, if a page is taken away in the microseconds since cachestat \
                (flash_loop_stalls_total).",
        calls: &[],
        opening: Opening::Cached,
        residency: Residency::Told,
        delivery: Delivery::BySize,
        starting: Starting::Helper,
        answering: Answering::Direct,
    },
];

/// Steps of Figure 2.8 that are no stage, and why.
pub const NO_STAGES: [(&str, &str); 1] = [(
    "2",
    "The patch of FreeBSD's virtual memory, which made mincore faster, is no part of a server.",
)];

/// # Errors
///
/// There is no such stage; the error names them all.
pub fn find(name: &str) -> Result<&'static Stage, String> {
    let found = STAGES.iter().find(|stage| stage.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        format!(
            "there is no stage `{name}`; there are: {}",
            names.join(", ")
        )
    })
}

impl Stage {
    pub fn today() -> &'static Stage {
        &STAGES[STAGES.len() - 1]
    }

    /// System calls that a loop makes in this stage only.
    pub fn own_calls(&self) -> &'static [libc::c_long] {
        match self.residency {
            Residency::Mincore => &[libc::SYS_mincore],
            _ => &[],
        }
    }
}

/// Files kept open by a stage whose loops open none at once.
const OPEN_FILES: usize = 1024;
/// How long an open file is used before its name is looked up again.
const CHECK_MS: u64 = 1000;
/// Bytes of files, in today's stage.
const KEPT: u64 = 16 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub stage: &'static Stage,
    /// Files that are kept open, in all loops together.
    pub open_files: Option<usize>,
    /// How long one is used before its name is looked up again.
    pub check_ms: u64,
    /// Bytes of files that are taken to be in memory, in all loops together.
    pub memory: u64,
    /// Bytes that are kept of files on file systems that do not tell what is in memory, in all loops together.
    pub kept: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            stage: Stage::today(),
            open_files: None,
            check_ms: CHECK_MS,
            memory: quarter_of_memory(),
            kept: KEPT,
        }
    }
}

impl Settings {
    pub fn open_files(&self) -> usize {
        let usual = match self.stage.opening {
            Opening::Cached => 0,
            Opening::Repeated | Opening::Passed => OPEN_FILES,
        };
        self.open_files.unwrap_or(usual)
    }

    /// No earlier stage kept bytes of files.
    pub fn kept_bytes(&self) -> u64 {
        match self.stage.residency {
            Residency::Told => self.kept,
            Residency::Mincore | Residency::Assumed | Residency::Reported => 0,
        }
    }
}

fn quarter_of_memory() -> u64 {
    // SAFETY: the calls take numbers and return numbers.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_differs_from_the_one_before() {
        let strategies = |stage: &Stage| {
            (
                stage.opening,
                stage.residency,
                stage.delivery,
                stage.starting,
                stage.answering,
            )
        };
        for pair in STAGES.windows(2) {
            assert_ne!(strategies(&pair[0]), strategies(&pair[1]));
            assert_ne!(pair[0].name, pair[1].name);
        }
        assert_eq!(Stage::today().name, "today");
        assert_eq!(find("no-mmap").expect("it is one").steps, "6");
        let error = find("flash").expect_err("it is none");
        assert!(error.contains("original, sendfile"), "{error}");
    }
}
