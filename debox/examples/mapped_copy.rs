//! Figure 2.4 of Ruan and Pai, "Making the Box Transparent", with DeBox's own records.
//!
//! Maps a 10 MB file that is not in memory and copies it to another file with one `write`. What
//! looks like a write is mostly page faults and reads: the record tells.
//!
//! ```text
//! mapped_copy [--tap user] [DIRECTORY]
//! ```
//!
//! The directory is to be on a real disk; default: the current one.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use debox::inband;
use debox::record::{Record, Waker};
use debox::Tap;

const LENGTH: usize = 10 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut wanted = inband::Options::default();
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--tap") {
        wanted.tap = match arguments.get(1).and_then(|name| name.to_str()) {
            Some("user") => Some(Tap::User),
            _ => return Err("the taps to choose from: user".into()),
        };
        arguments.drain(..2);
    }
    let directory = PathBuf::from(arguments.first().map_or(OsStr::new("."), |name| name));
    let name = |end: &str| directory.join(format!("mapped_copy.{}.{end}", std::process::id()));
    let (from, to) = (name("from"), name("to"));
    let source = cold_file(&from)?;
    // O_DSYNC: the call returns when the data is on the disk.
    let mut options = OpenOptions::new();
    let mut copy = options
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DSYNC)
        .open(&to)?;
    let mapped = map(&source)?;
    fs::remove_file(&from)?;
    fs::remove_file(&to)?;

    inband::enable(&wanted)?;
    // Under the kernel tap this is just the write.
    let arguments = [
        copy.as_raw_fd() as u64,
        mapped.as_ptr() as u64,
        LENGTH as u64,
    ];
    let written = inband::tap(libc::SYS_write, arguments, || copy.write(mapped))?;
    let record = inband::last().ok_or("the call left no record")?.copy();
    if written != LENGTH {
        return Err(format!("wrote {written} of {LENGTH} bytes").into());
    }
    print(&record)?;
    inband::disable()?;
    Ok(())
}

fn print(record: &Record) -> Result<(), inband::Error> {
    println!("Record:");
    println!("{:>12}, /* system call */", record.call_name());
    println!("{:>12}, /* call time, microsecs */", record.wall_ns / 1000);
    println!(
        "{:>12}, /* of which on the CPU */",
        record.budget.cpu_ns / 1000
    );
    println!("{:>12}, /* asleep */", record.budget.blocked_ns / 1000);
    println!(
        "{:>12}, /* waiting for a CPU */",
        record.budget.runqueue_ns / 1000
    );
    println!(
        "{:>12}, /* pushed off the CPU */",
        record.budget.preempted_ns / 1000
    );
    println!("{:>12}, /* # of major page faults */", record.faults_major);
    println!("{:>12}, /* # of minor page faults */", record.faults_minor);
    println!(
        "{:>12}, /* # of sites where it slept */",
        record.sleeps().len()
    );
    for (index, sleep) in record.sleeps().iter().enumerate() {
        let explained = inband::explain(record, index)?;
        let waker = match sleep.waker() {
            Waker::Task => format!("{} ({})", sleep.waker_comm(), sleep.waker_tid),
            kind => format!("{kind:?}").to_lowercase(),
        };
        println!("\nSleep[{index}]:");
        println!("{:>12} /* # occurrences */", sleep.count);
        println!(
            "{:>12} /* time blocked, microsecs */",
            sleep.blocked_ns / 1000
        );
        println!("{:>12} /* longest, microsecs */", sleep.longest_ns / 1000);
        println!("{:>12} /* label */", explained.label);
        println!("{:>12} /* class */", explained.class);
        println!("{:>12} /* where blocked */", explained.site());
        println!("{:>12} /* woken by, the last time */", waker);
        println!("{:>12} /* # waiters on entry */", sleep.waiters_entry);
        println!("{:>12} /* # waiters on exit */", sleep.waiters_exit);
    }
    Ok(())
}

/// A file that is on the disk and nowhere else.
fn cold_file(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    let data: Vec<u8> = (0..LENGTH).map(|i| (i * 31) as u8).collect();
    file.write_all(&data)?;
    file.sync_all()?;
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(file),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn map(file: &File) -> io::Result<&'static [u8]> {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping of an open file, wherever there is room.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            LENGTH,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped for good, and nobody changes the file: it has no name any more.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), LENGTH) })
}
