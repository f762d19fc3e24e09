//! Writes a file completely or not at all: to a temporary file in the same directory, which then replaces the
//! target. The previous file stays if the disk is full.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use tempfile::NamedTempFile;

use crate::{kind, planted};

/// Taken names that are skipped before giving up.
const NUMBERS_MAX: u32 = 100_000;

/// A file that is being written.
pub struct Output {
    path: PathBuf,
    place: Place,
}

enum Place {
    /// The temporary file that finally replaces `to`.
    Beside { file: NamedTempFile, to: PathBuf },
    /// A device, a pipe, or a file in a directory in which no other file can be created.
    Direct(File),
}

impl Output {
    /// Nothing appears under the file's name before [`Output::commit`].
    pub fn create(path: &Path) -> Result<Output> {
        let cannot = || cannot_write(path);
        let made = |place| Output {
            path: path.to_path_buf(),
            place,
        };
        if is_own_descriptor(path) {
            let file = File::create(path).with_context(cannot)?;
            return Ok(made(Place::Direct(file)));
        }
        planted::refuse(path)?;
        let there = fs::metadata(path).ok();
        let found = there.as_ref().map(Metadata::file_type);
        ensure!(
            !found.is_some_and(|found| found.is_dir()),
            "{} is a directory: name a file in it",
            path.display()
        );
        if found.and_then(kind).is_some() {
            let file = File::options().write(true).open(path);
            return Ok(made(Place::Direct(file.with_context(cannot)?)));
        }
        // The target of a link is replaced, not the link.
        let to = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if there.is_some() {
            // A file that this user may not write is not replaced, either.
            File::options().write(true).open(&to).with_context(cannot)?;
        }
        let beside = tempfile::Builder::new()
            .prefix(".debox-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(directory_of(&to));
        match beside {
            Ok(file) => Ok(made(Place::Beside { file, to })),
            // Only the file itself is writable, not its directory.
            Err(error) if there.is_some() && is_refused(&error) => {
                let file = File::options().write(true).truncate(true).open(&to);
                Ok(made(Place::Direct(file.with_context(cannot)?)))
            }
            Err(error) => Err(error).with_context(cannot),
        }
    }

    /// Replaces the target.
    pub fn commit(self) -> Result<()> {
        let cannot = || cannot_write(&self.path);
        let Place::Beside { file, to } = self.place else {
            return Ok(());
        };
        // With delayed allocation, "no space left" may appear only when the data is written back.
        file.as_file().sync_data().with_context(cannot)?;
        let mode = match fs::metadata(&to) {
            Ok(old) => {
                // If root writes the file, its owner does not change. A user who may not give files away
                // becomes the owner.
                let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
                old.permissions().mode()
            }
            Err(_) => 0o666 & !umask(),
        };
        file.as_file()
            .set_permissions(Permissions::from_mode(mode))
            .with_context(cannot)?;
        match file.persist(&to) {
            Ok(_) => Ok(()),
            // A file that is itself a mount point cannot be replaced.
            Err(failed) if failed.error.raw_os_error() == Some(libc::EBUSY) => {
                let mut file = failed.file;
                io::Seek::rewind(file.as_file_mut()).with_context(cannot)?;
                let mut into = File::create(&to).with_context(cannot)?;
                io::copy(file.as_file_mut(), &mut into).with_context(cannot)?;
                into.sync_data().with_context(cannot)
            }
            Err(failed) => Err(failed.error).with_context(cannot),
        }
    }

    /// Puts the file in place if there is none under this name.
    pub fn commit_new(self) -> Result<()> {
        let cannot = || cannot_write(&self.path);
        let Place::Beside { file, to } = self.place else {
            return Ok(());
        };
        file.as_file().sync_data().with_context(cannot)?;
        let mode = Permissions::from_mode(0o666 & !umask());
        file.as_file().set_permissions(mode).with_context(cannot)?;
        file.persist_noclobber(&to)
            .map_err(|failed| failed.error)
            .with_context(cannot)?;
        Ok(())
    }

    pub fn file(&self) -> &File {
        match &self.place {
            Place::Beside { file, .. } => file.as_file(),
            Place::Direct(file) => file,
        }
    }
}

impl Write for &Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Makes exceeding the file size limit (`ulimit -f`) a write error instead of a deadly signal. Call this
/// once, at the start of a program.
pub fn survive_file_limit() {
    // Programs that are started do not inherit a handler; they would inherit that the signal is ignored.
    extern "C" fn pass_over(_: libc::c_int) {}
    let handler = pass_over as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe {
        if libc::signal(libc::SIGXFSZ, handler) == libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
    }
}

/// Writes a whole file, or leaves the previous one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let output = Output::create(path)?;
    (&output)
        .write_all(bytes)
        .with_context(|| cannot_write(path))?;
    output.commit()
}

/// Returns an error if nothing could be written there, to be checked before any long work. An existing file
/// is not changed.
pub fn check(path: &Path) -> Result<()> {
    let there = fs::metadata(path);
    let is_special = |found: &Metadata| !found.is_file() && !found.is_dir();
    if is_own_descriptor(path) || there.as_ref().is_ok_and(is_special) {
        return Ok(());
    }
    planted::refuse(path)?;
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    opened.with_context(|| cannot_write(path))?;
    if there.is_err() {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Creates a file that the user named and that is written in place, truncating an existing one. Only regular
/// files are accepted.
pub fn create_in_place(path: &Path) -> Result<File> {
    planted::refuse(path)?;
    let require_regular = |found: Metadata| match kind(found.file_type()) {
        Some(kind) => bail!("{} is {kind}: name a regular file to write", path.display()),
        None => Ok(()),
    };
    if let Ok(found) = fs::metadata(path) {
        require_regular(found)?;
    }
    // Must not block: the file may have been replaced since it was checked.
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .with_context(|| cannot_write(path))?;
    require_regular(file.metadata().with_context(|| cannot_write(path))?)?;
    file.set_len(0).with_context(|| cannot_write(path))?;
    Ok(file)
}

/// Creates a file that does not exist yet, without following links.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Creates a file under the first free name. Existing files are not touched, be they links or another
/// recording's. `name` returns the name for a number; numbers start at `from`.
pub fn create_numbered(
    from: u32,
    name: impl Fn(u32) -> PathBuf,
    is_free: impl Fn(&Path) -> bool,
) -> Result<(File, PathBuf, u32)> {
    for number in from..from.saturating_add(NUMBERS_MAX) {
        let path = name(number);
        if !is_free(&path) {
            continue;
        }
        match create_new(&path) {
            Ok(file) => return Ok((file, path, number)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| cannot_write(&path)),
        }
    }
    bail!(
        "cannot write {}: this name and the {NUMBERS_MAX} after it are taken",
        name(from).display()
    )
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// The directory that contains a name.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn is_refused(error: &io::Error) -> bool {
    let refused = [libc::EACCES, libc::EPERM, libc::EROFS];
    error
        .raw_os_error()
        .is_some_and(|error| refused.contains(&error))
}

/// Descriptors that this process was started with are written in place.
fn is_own_descriptor(path: &Path) -> bool {
    let named = ["/dev/stdout", "/dev/stderr"];
    named.iter().any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Read from /proc instead of by changing it, because other threads create files, too.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o077)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_what_it_was_until_the_new_one_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("report");
        fs::write(&path, "old").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("its owner may");
        symlink("report", directory.path().join("link")).expect("a link");
        let output = Output::create(&directory.path().join("link")).expect("a file");
        (&output).write_all(b"new").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
        drop(output);
        assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
        replace(&directory.path().join("link"), b"new").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "new");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(names(directory.path()), ["link", "report"]);
        assert!(replace(directory.path(), b"x").is_err());
        assert!(check(directory.path()).is_err());
        check(&directory.path().join("other")).expect("it could be written");
        assert_eq!(names(directory.path()), ["link", "report"]);
        replace(Path::new("/dev/null"), b"x").expect("it takes everything");
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |number: u32| directory.path().join(format!("part-{number}"));
        fs::write(at(0), "another's").expect("a file");
        symlink("victim", at(1)).expect("a link");
        fs::create_dir(at(2)).expect("a directory");
        let made = create_numbered(0, at, |path| path != at(3)).expect("a file");
        assert_eq!((made.1, made.2), (at(4), 4));
        assert_eq!(fs::read_to_string(at(0)).expect("a file"), "another's");
        assert!(!directory.path().join("victim").exists());
    }
}
