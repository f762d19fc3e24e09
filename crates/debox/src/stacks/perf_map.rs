//! Names of code that a program makes at run time, from the file that it writes for profilers:
//! `/tmp/perf-PID.map`, with a line `BEGIN SIZE NAME` for each function, numbers in hexadecimal.
//!
//! Node (`--perf-basic-prof`), Python (`-X perf`), Java's agents, .NET, LuaJIT and others write it, with the
//! process's number in its own PID namespace and in the /tmp of its own root. The file is held open once it is
//! found, as it may be removed with its container, and read on as it grows: a later line takes the place of earlier
//! ones that it overlaps.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::fcntl::{openat2, OFlag, OpenHow, ResolveFlag};

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_MAPS: usize = 1_000;
const MAX_BYTES: u64 = 64 << 20;
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_NAME: usize = 512;

/// A file that was not there may have come: how often that is looked for as stacks come in.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// By process.
#[derive(Default)]
pub(super) struct PerfMaps {
    maps: HashMap<u32, Known>,
    functions: usize,
}

enum Known {
    Missing { since: Instant },
    Open(PerfMap),
}

struct PerfMap {
    file: File,
    /// How much of it has been read, up to the end of a line.
    read: u64,
    /// By begin: the end, and the name.
    functions: BTreeMap<u64, (u64, Rc<str>)>,
}

impl PerfMaps {
    /// The function that a process says is at an address, and how far from its begin that is.
    pub fn find(&mut self, tgid: u32, address: u64) -> Option<(Rc<str>, u64)> {
        let now = Instant::now();
        self.find_as_of(tgid, address, now.checked_sub(AGAIN_AFTER).unwrap_or(now))
    }

    /// The same; a file that was missing before that instant is looked for again.
    pub fn find_as_of(
        &mut self,
        tgid: u32,
        address: u64,
        instant: Instant,
    ) -> Option<(Rc<str>, u64)> {
        let may_open = match self.maps.get(&tgid) {
            None => self.maps.len() < MAX_MAPS,
            Some(Known::Missing { since }) => *since < instant,
            Some(Known::Open(_)) => false,
        };
        if may_open {
            let known = open_map(tgid).map_or_else(
                || Known::Missing {
                    since: Instant::now(),
                },
                |file| Known::Open(PerfMap::of(file)),
            );
            self.maps.insert(tgid, known);
        }
        let Some(Known::Open(map)) = self.maps.get_mut(&tgid) else {
            return None;
        };
        let before = map.functions.len();
        map.read_on(MAX_FUNCTIONS.saturating_sub(self.functions - before));
        self.functions = self.functions - before + map.functions.len();
        map.find(address)
    }

    /// Reads from a file instead of a process's.
    #[cfg(test)]
    pub fn put(&mut self, tgid: u32, file: File) {
        self.maps.insert(tgid, Known::Open(PerfMap::of(file)));
    }
}

impl PerfMap {
    fn of(file: File) -> PerfMap {
        PerfMap {
            file,
            read: 0,
            functions: BTreeMap::new(),
        }
    }

    /// Takes in the lines that have come since the last time, for so many functions in all.
    fn read_on(&mut self, most: usize) {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let until = length.min(MAX_BYTES);
        if until <= self.read {
            return;
        }
        let mut bytes = vec![0; (until - self.read) as usize];
        if self.file.read_exact_at(&mut bytes, self.read).is_err() {
            return;
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            if self.functions.len() >= most {
                break;
            }
            if let Some((begin, end, name)) = parse(line) {
                self.put(begin, end, name);
            }
        }
        self.read += end as u64 + 1;
    }

    fn put(&mut self, begin: u64, end: u64, name: Rc<str>) {
        let overlapped = self.functions.range(..end).rev();
        let overlapped: Vec<u64> = overlapped
            .take_while(|(_, (other_end, _))| *other_end > begin)
            .map(|(begin, _)| *begin)
            .collect();
        for begin in overlapped {
            self.functions.remove(&begin);
        }
        self.functions.insert(begin, (end, name));
    }

    fn find(&self, address: u64) -> Option<(Rc<str>, u64)> {
        let (begin, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then(|| (Rc::clone(name), address - begin))
    }
}

/// `None` for a line that is none, or says what cannot be.
fn parse(line: &[u8]) -> Option<(u64, u64, Rc<str>)> {
    let line = &line[..line.len().min(MAX_NAME)];
    let line = String::from_utf8_lossy(line);
    let (begin, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (begin, size) = (number(begin)?, number(size)?);
    let end = begin.checked_add(size)?;
    let name = name.trim();
    (size > 0 && !name.is_empty()).then(|| (begin, end, name.into()))
}

/// The process's file, in its own /tmp. It is believed if it is a regular file of the process's user or root:
/// anyone can make a file of that name.
fn open_map(tgid: u32) -> Option<File> {
    let process = format!("/proc/{tgid}");
    // Of a process that has ended and was not waited for, there is an owner, and no root.
    let owner = std::fs::metadata(&process).map(|metadata| metadata.uid());
    let root = File::open(format!("{process}/root"));
    if let (Ok(owner), Ok(root), Some(number)) = (&owner, root, number_inside(tgid)) {
        let name = PathBuf::from(format!("tmp/perf-{number}.map"));
        return believed(open_below(&root, &name)?, *owner);
    }
    // It was perhaps in no container: then the file is where this process sees it.
    let name = PathBuf::from(format!("tmp/perf-{tgid}.map"));
    // SAFETY: geteuid only returns a number.
    let owner = owner.unwrap_or_else(|_| unsafe { libc::geteuid() });
    believed(open_below(&File::open("/").ok()?, &name)?, owner)
}

fn believed(file: File, user: u32) -> Option<File> {
    let metadata = file.metadata().ok()?;
    let is_believed = metadata.is_file() && [0, user].contains(&metadata.uid());
    is_believed.then_some(file)
}

/// Links on the way are followed as the process itself would follow them.
fn open_below(root: &File, path: &Path) -> Option<File> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root.as_fd(), path, how).ok().map(File::from)
}

/// The process's number in its own PID namespace.
fn number_inside(tgid: u32) -> Option<i32> {
    let status = procfs::process::Process::new(tgid as i32)
        .ok()?
        .status()
        .ok()?;
    status.nspid.and_then(|numbers| numbers.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn name(maps: &mut PerfMaps, tgid: u32, address: u64) -> Option<(String, u64)> {
        maps.find(tgid, address)
            .map(|(name, offset)| (name.to_string(), offset))
    }

    #[test]
    fn a_function_is_found_by_any_address_in_it() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        writeln!(
            file,
            "1000 20 py::work:/app/main.py\n0x2000 0x10 JS:*b c d /x.js:1\n"
        )
        .unwrap();
        let mut maps = PerfMaps::default();
        maps.put(7, file.try_clone().unwrap());
        assert_eq!(
            name(&mut maps, 7, 0x1000),
            Some(("py::work:/app/main.py".into(), 0))
        );
        assert_eq!(
            name(&mut maps, 7, 0x101f),
            Some(("py::work:/app/main.py".into(), 0x1f))
        );
        assert_eq!(name(&mut maps, 7, 0x1020), None);
        assert_eq!(
            name(&mut maps, 7, 0x2004),
            Some(("JS:*b c d /x.js:1".into(), 4))
        );
        // Code that was thrown away has made room for other code; half a line is not read yet.
        write!(file, "1010 20 second\n2000 10 thi").unwrap();
        assert_eq!(name(&mut maps, 7, 0x1018), Some(("second".into(), 8)));
        assert_eq!(name(&mut maps, 7, 0x1000), None);
        writeln!(file, "rd").unwrap();
        assert_eq!(name(&mut maps, 7, 0x2004), Some(("third".into(), 4)));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in [
            "",
            "1000",
            "1000 20",
            "x 20 a",
            "1000 y a",
            "1000 0 a",
            "1000 20 ",
            "ffffffffffffffff 2 a",
        ] {
            assert!(parse(line.as_bytes()).is_none(), "{line}");
        }
        let long = format!("1 2 {}", "x".repeat(10_000));
        assert_eq!(parse(long.as_bytes()).unwrap().2.len(), MAX_NAME - 4);
        assert!(parse(b"1 2 \xff\xfe").is_some());
    }

    #[test]
    fn the_file_of_another_user_is_not_believed() {
        let file = || tempfile::tempfile().expect("a temporary file");
        let owner = file().metadata().unwrap().uid();
        assert!(believed(file(), owner).is_some());
        let is_root = owner == 0;
        assert_eq!(believed(file(), owner + 1).is_some(), is_root);
        let directory = File::open("/tmp").unwrap();
        assert!(believed(directory, owner).is_none());
    }

    #[test]
    fn a_file_that_was_missing_is_looked_for_again() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn();
        let child = child.as_mut().expect("a process");
        let pid = child.id();
        let mut maps = PerfMaps::default();
        let before = name(&mut maps, pid, 0x5010);
        let path = format!("/tmp/perf-{}.map", number_inside(pid).unwrap());
        std::fs::write(&path, "5000 100 made::late\n").unwrap();
        // Not for each stack that comes in, but when names are asked for.
        let soon = name(&mut maps, pid, 0x5010);
        let then = maps.find_as_of(pid, 0x5010, Instant::now());
        std::fs::remove_file(&path).unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!((before, soon), (None, None));
        assert_eq!(then, Some(("made::late".into(), 0x10)));
    }

    #[test]
    fn the_own_process_has_its_own_file() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{}.map", number_inside(pid).unwrap());
        std::fs::write(&path, "5000 100 made::at::run_time\n").unwrap();
        let mut maps = PerfMaps::default();
        let found = name(&mut maps, pid, 0x5010);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, Some(("made::at::run_time".into(), 0x10)));
        assert_eq!(
            name(&mut maps, pid, 0x50ff).unwrap().1,
            0xff,
            "it is held open"
        );
    }
}
