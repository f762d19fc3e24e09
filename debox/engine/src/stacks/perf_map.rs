//! Names of code that a program makes at run time, read from the file that it writes for profilers:
//! `/tmp/perf-PID.map`, with a line `BEGIN SIZE NAME` for each function, numbers in hexadecimal.
//!
//! Node (`--perf-basic-prof`), Python (`-X perf`), Java's agents, .NET, LuaJIT and others write it, with the
//! process's id in its own PID namespace and in the /tmp of its own root. The file is kept open once it is found,
//! since it may be removed with its container, and is read further as it grows: a later line replaces earlier ones
//! that it overlaps.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::plain_file::{self, Links};

/// Limits on what is kept, so that a session's memory is bounded.
const MAX_MAPS: usize = 1_000;
const MAX_BYTES: u64 = 64 << 20;
const MAX_FUNCTIONS: usize = 1 << 20;
const MAX_NAME: usize = 512;
const MAX_NAMES: usize = 64 << 20;
/// Bytes read at once. A longer line is ignored.
const CHUNK: usize = 64 << 10;

/// When a missing file is looked for again as stacks are received: at first soon, because stacks of the time before a
/// runtime begins to write it come first, and then twice as late each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The files by process.
#[derive(Default)]
pub(super) struct PerfMaps {
    maps: HashMap<u32, Known>,
    kept: Kept,
}

/// The amount in memory: functions, and bytes of their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kept {
    functions: usize,
    names: usize,
}

enum Known {
    Missing {
        since: Instant,
        /// Until it is looked for again.
        wait: Duration,
    },
    Open(PerfMap),
}

struct PerfMap {
    file: File,
    /// How much of the file has been read, up to the end of a line.
    read: u64,
    /// The file's length then, including an unfinished line at its end.
    length: u64,
    /// Whether reading stopped in the middle of a line that is too long.
    is_in_line: bool,
    /// By start address: the end address, and the name.
    functions: BTreeMap<u64, (u64, Rc<str>)>,
    names: usize,
}

impl PerfMaps {
    /// The function that, according to the process, is at an address, and the offset in it.
    pub fn find(&mut self, tgid: u32, address: u64) -> Option<(Rc<str>, u64)> {
        self.find_if(tgid, address, |since, wait| since.elapsed() >= wait)
    }

    /// The same. A file that was missing before this instant is looked for again.
    pub fn find_as_of(
        &mut self,
        tgid: u32,
        address: u64,
        instant: Instant,
    ) -> Option<(Rc<str>, u64)> {
        self.find_if(tgid, address, |since, _| since < instant)
    }

    /// `is_due`: whether a file that was missing then is to be looked for again.
    fn find_if(
        &mut self,
        tgid: u32,
        address: u64,
        is_due: impl Fn(Instant, Duration) -> bool,
    ) -> Option<(Rc<str>, u64)> {
        let waited = match self.maps.get(&tgid) {
            None => (self.maps.len() < MAX_MAPS).then_some(Duration::ZERO),
            Some(Known::Missing { since, wait }) => is_due(*since, *wait).then_some(*wait),
            Some(Known::Open(_)) => None,
        };
        if let Some(waited) = waited {
            let known = open_map(tgid).map_or_else(
                || Known::Missing {
                    since: Instant::now(),
                    wait: (waited * 2).clamp(FIRST_WAIT, LONGEST_WAIT),
                },
                |file| Known::Open(PerfMap::of(file)),
            );
            self.maps.insert(tgid, known);
        }
        let Some(Known::Open(map)) = self.maps.get_mut(&tgid) else {
            return None;
        };
        let (before, all) = (map.kept(), self.kept);
        let others = Kept {
            functions: all.functions - before.functions,
            names: all.names - before.names,
        };
        map.read_on(Kept {
            functions: MAX_FUNCTIONS.saturating_sub(others.functions),
            names: MAX_NAMES.saturating_sub(others.names),
        });
        let now = map.kept();
        self.kept = Kept {
            functions: others.functions + now.functions,
            names: others.names + now.names,
        };
        map.find(address)
    }

    /// Uses this file for a process.
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
            length: 0,
            is_in_line: false,
            functions: BTreeMap::new(),
            names: 0,
        }
    }

    fn kept(&self) -> Kept {
        Kept {
            functions: self.functions.len(),
            names: self.names,
        }
    }

    /// Reads the lines added since the last time, up to a total limit. Whatever the content, only an unfinished
    /// line at the end of the file is read twice.
    fn read_on(&mut self, most: Kept) {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let until = length.min(MAX_BYTES);
        if until == self.length {
            return;
        }
        self.length = until;
        let mut bytes = vec![0; CHUNK];
        while self.read < until {
            let wanted = (until - self.read).min(CHUNK as u64) as usize;
            let chunk = &mut bytes[..wanted];
            if self.file.read_exact_at(chunk, self.read).is_err() {
                return;
            }
            let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else {
                if wanted < CHUNK {
                    return; // the rest of the line is still to be written
                }
                self.is_in_line = true;
                self.read += wanted as u64;
                continue;
            };
            let mut lines = chunk[..end].split(|byte| *byte == b'\n');
            if std::mem::take(&mut self.is_in_line) {
                lines.next();
            }
            for line in lines {
                let has_room =
                    self.functions.len() < most.functions && self.names + MAX_NAME <= most.names;
                if let Some((begin, end, name)) = has_room.then(|| parse(line)).flatten() {
                    self.put(begin, end, name);
                }
            }
            self.read += end as u64 + 1;
        }
    }

    fn put(&mut self, begin: u64, end: u64, name: Rc<str>) {
        let overlapped = self.functions.range(..end).rev();
        let overlapped: Vec<u64> = overlapped
            .take_while(|(_, (other_end, _))| *other_end > begin)
            .map(|(begin, _)| *begin)
            .collect();
        for begin in overlapped {
            let removed = self.functions.remove(&begin);
            self.names -= removed.map_or(0, |(_, name)| name.len());
        }
        self.names += name.len();
        self.functions.insert(begin, (end, name));
    }

    fn find(&self, address: u64) -> Option<(Rc<str>, u64)> {
        let (begin, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then(|| (Rc::clone(name), address - begin))
    }
}

/// `None` for an invalid line, or for impossible values.
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

/// Opens the process's file, in its own /tmp. It is trusted if it is a regular file of the process's user or root,
/// and not a link: any user can make a file of that name, or a link to root's files.
fn open_map(tgid: u32) -> Option<File> {
    // Held by its directory, so that all of this refers to one process, even if its id is reused.
    let process = procfs::process::Process::new(tgid as i32).ok();
    let owner = process.as_ref().and_then(|process| process.uid().ok());
    // A zombie process has an owner but no root.
    let root = plain_file::directory(format!("/proc/{tgid}/root").as_ref());
    if let (Some(owner), Some(root), Some(number)) =
        (owner, root, process.as_ref().and_then(number_inside))
    {
        let name = PathBuf::from(format!("tmp/perf-{number}.map"));
        let file = plain_file::open_below(&root, &name, Links::OnTheWay)?;
        return believed(file, owner);
    }
    // The process was perhaps not in a container: then the file is in this process's own /tmp.
    let name = PathBuf::from(format!("tmp/perf-{tgid}.map"));
    // SAFETY: geteuid only returns a number.
    let owner = owner.unwrap_or_else(|| unsafe { libc::geteuid() });
    let root = plain_file::directory("/".as_ref())?;
    let file = plain_file::open_below(&root, &name, Links::OnTheWay)?;
    believed(file, owner)
}

fn believed(file: File, user: u32) -> Option<File> {
    let metadata = file.metadata().ok()?;
    let is_believed = metadata.is_file() && [0, user].contains(&metadata.uid());
    is_believed.then_some(file)
}

/// The process's id in its own PID namespace.
fn number_inside(process: &procfs::process::Process) -> Option<i32> {
    let status = process.status().ok()?;
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
        // Discarded code was replaced by other code; the unfinished line is not read yet.
        write!(file, "1010 20 second\n2000 10 thi").unwrap();
        assert_eq!(name(&mut maps, 7, 0x1018), Some(("second".into(), 8)));
        assert_eq!(name(&mut maps, 7, 0x1000), None);
        writeln!(file, "rd").unwrap();
        assert_eq!(name(&mut maps, 7, 0x2004), Some(("third".into(), 4)));
    }

    /// Regression: a hole of 64 MB without an end of line was read again for each address that was looked up.
    #[test]
    fn a_line_without_end_is_read_once() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(MAX_BYTES - 200).unwrap();
        file.write_all_at(b"\n1000 20 after\n", MAX_BYTES - 100)
            .unwrap();
        let mut map = PerfMap::of(file.try_clone().unwrap());
        let most = Kept {
            functions: 10,
            names: MAX_NAMES,
        };
        map.read_on(most);
        assert_eq!(map.read, MAX_BYTES - 100 + 15);
        assert_eq!(map.find(0x1001), Some(("after".into(), 1)));
        let shorter = tempfile::tempfile().expect("a temporary file");
        shorter.set_len(MAX_BYTES).unwrap();
        let mut map = PerfMap::of(shorter);
        map.read_on(most);
        let left = MAX_BYTES - map.read;
        assert!(left <= CHUNK as u64, "{left} are read again and again");
    }

    #[test]
    fn names_take_no_more_memory_than_there_is_for_them() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        for at in 1..100u64 {
            writeln!(file, "{:x} 10 {}", at * 16, "n".repeat(200)).unwrap();
        }
        let mut map = PerfMap::of(file);
        map.read_on(Kept {
            functions: 1000,
            names: 5000,
        });
        assert!((4000..=5000).contains(&map.names), "{}", map.names);
        assert_eq!(map.functions.len() * 200, map.names);
        map.put(0, 1 << 20, "all".into());
        assert_eq!(
            map.kept(),
            Kept {
                functions: 1,
                names: 3
            }
        );
    }

    /// Root would read the target of a user's link, such as `/proc/kmsg`, and trust it because it belongs to root.
    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn();
        let child = child.as_mut().expect("a process");
        let pid = child.id();
        let target = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(target.path(), "5000 100 of::another\n").unwrap();
        let path = format!("/tmp/perf-{pid}.map");
        std::os::unix::fs::symlink(target.path(), &path).unwrap();
        let found = name(&mut PerfMaps::default(), pid, 0x5010);
        std::fs::remove_file(&path).unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(found, None);
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
        let path = format!("/tmp/perf-{}.map", pid);
        std::fs::write(&path, "5000 100 made::late\n").unwrap();
        // The file is looked for again not for each stack received, but when names are requested.
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
        let path = format!("/tmp/perf-{}.map", pid);
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
