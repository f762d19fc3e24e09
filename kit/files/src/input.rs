//! Opens files for reading. A FIFO without a writer would block its reader forever, and opening a device
//! may have side effects.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{bail, Context, Result};

use crate::kind;

/// Opens a regular file, which allows reading at any position.
pub fn open(path: &Path) -> Result<File> {
    let found = std::fs::metadata(path).with_context(|| cannot_open(path))?;
    require_regular(path, found.file_type())?;
    open_now(path, false)
}

/// Opens a regular file, or a descriptor that this process was started with: `/dev/stdin`, or the
/// `/dev/fd/63` that a shell makes from `<(command)`.
pub fn open_stream(path: &Path) -> Result<File> {
    match is_own_descriptor(path) {
        true => {
            let file = File::open(path).with_context(|| cannot_open(path))?;
            if file.metadata().is_ok_and(|found| found.is_dir()) {
                bail!("{} is a directory: name a file in it", path.display());
            }
            Ok(file)
        }
        false => open(path),
    }
}

/// Reads the whole content of what [`open_stream`] opens.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_stream(path)?, &mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// Opens the file itself, without following a link.
pub fn open_unlinked(path: &Path) -> Result<File> {
    let found = std::fs::symlink_metadata(path).with_context(|| cannot_open(path))?;
    if found.is_symlink() {
        bail!(
            "{} is a symbolic link, which is not followed",
            path.display()
        );
    }
    require_regular(path, found.file_type())?;
    open_now(path, true)
}

/// Must not block: the file may have been replaced since it was checked.
fn open_now(path: &Path, unlinked: bool) -> Result<File> {
    let nofollow = if unlinked { libc::O_NOFOLLOW } else { 0 };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | nofollow)
        .open(path)
        .with_context(|| cannot_open(path))?;
    let found = file.metadata().with_context(|| cannot_open(path))?;
    require_regular(path, found.file_type())?;
    Ok(file)
}

fn cannot_open(path: &Path) -> String {
    format!("cannot open {}", path.display())
}

fn require_regular(path: &Path, found: std::fs::FileType) -> Result<()> {
    match kind(found) {
        None => Ok(()),
        Some(kind @ "a directory") => bail!("{} is {kind}: name a file in it", path.display()),
        Some(kind) => bail!("{} is {kind}: name a regular file", path.display()),
    }
}

fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).expect("a path");
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        std::os::unix::fs::symlink(at("fifo"), at("link")).expect("a link");
        let _socket = UnixListener::bind(at("socket")).expect("a socket");
        std::fs::write(at("plain"), "x").expect("a file");
        std::os::unix::fs::symlink(at("plain"), at("other")).expect("a link");
        for (path, what) in [
            (at("fifo"), "a FIFO"),
            (at("link"), "a FIFO"),
            (at("socket"), "a socket"),
            (at(""), "a directory"),
            ("/dev/null".into(), "a character device"),
            (at("none"), "cannot open"),
        ] {
            for opened in [open(&path), open_stream(&path)] {
                let error = format!("{:#}", opened.expect_err("it is refused"));
                assert!(error.contains(what), "{error}");
            }
        }
        assert!(open(&at("plain")).is_ok() && open(&at("other")).is_ok());
        assert!(open_unlinked(&at("plain")).is_ok() && open_unlinked(&at("other")).is_err());
    }

    #[test]
    fn what_the_process_was_started_with_may_be_a_pipe() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (out, mut into) = io::pipe().expect("a pipe");
        into.write_all(b"rows").expect("room in it");
        drop(into);
        let path = format!("/dev/fd/{}", out.as_raw_fd());
        assert_eq!(read(Path::new(&path)).expect("a pipe"), b"rows");
    }
}
