//! Writing a file whole or not at all: into another file beside it, which then takes its place. What was
//! there before stays if the disk is full.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use tempfile::NamedTempFile;

use crate::{kind, planted};

/// Names that may be taken before one is free.
const NUMBERS_MAX: u32 = 100_000;

/// A file that is being written.
pub struct Output {
    path: PathBuf,
    place: Place,
}

enum Place {
    /// The file that takes the place of `to` in the end.
    Beside { file: NamedTempFile, to: PathBuf },
    /// A device, a pipe, or a file in a directory that takes no other.
    Direct(File),
}

impl Output {
    /// Nothing is to be seen of it under its name before [`Output::commit`].
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
        // What a link leads to is replaced, not the link.
        let to = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if there.is_some() {
            // A file that may not be written is not replaced, either.
            File::options().write(true).open(&to).with_context(cannot)?;
        }
        let beside = tempfile::Builder::new()
            .prefix(".debox-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(directory_of(&to));
        match beside {
            Ok(file) => Ok(made(Place::Beside { file, to })),
            // Only the file itself can be written.
            Err(error) if there.is_some() && is_refused(&error) => {
                let file = File::options().write(true).truncate(true).open(&to);
                Ok(made(Place::Direct(file.with_context(cannot)?)))
            }
            Err(error) => Err(error).with_context(cannot),
        }
    }

    /// Puts it in place.
    pub fn commit(self) -> Result<()> {
        let cannot = || cannot_write(&self.path);
        let Place::Beside { file, to } = self.place else {
            return Ok(());
        };
        // Delayed allocation can put off "no space left" until the data is written back.
        file.as_file().sync_data().with_context(cannot)?;
        let mode = match fs::metadata(&to) {
            Ok(old) => {
                // The file stays its owner's if root writes it. Who may not give it away keeps it.
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
            // A file that is a mount by itself cannot be replaced.
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

    /// Puts it in place if nothing is there.
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

/// Makes it an error of the write, and no deadly signal, that a file may not grow (`ulimit -f`). To be called
/// once, at the start of a program.
pub fn survive_file_limit() {
    // Other than a signal that is ignored, one with a handler is not inherited by programs that are started.
    extern "C" fn pass_over(_: libc::c_int) {}
    let handler = pass_over as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe {
        if libc::signal(libc::SIGXFSZ, handler) == libc::SIG_IGN {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
    }
}

/// Writes all of a file, or leaves what was there.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let output = Output::create(path)?;
    (&output)
        .write_all(bytes)
        .with_context(|| cannot_write(path))?;
    output.commit()
}

/// An error if nothing could be written there, before anything long is done. A file that is there stays
/// as it is.
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

/// Makes a file that the user named and that is written in place, emptying what is there. Nothing but a
/// regular file is taken.
pub fn create_in_place(path: &Path) -> Result<File> {
    planted::refuse(path)?;
    let require_regular = |found: Metadata| match kind(found.file_type()) {
        Some(kind) => bail!("{} is {kind}: name a regular file to write", path.display()),
        None => Ok(()),
    };
    if let Ok(found) = fs::metadata(path) {
        require_regular(found)?;
    }
    // It may have become something else since then, so that the open must not wait.
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

/// Makes a file that is not there yet, and follows no link.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Makes a file under the first of the names that is free: what is there, a link or a file of another
/// recording, is not touched. `name` gives the name for each number; numbers begin at `from`.
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

/// The directory that a name is in.
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

/// What this process was started with is written where it stands.
fn is_own_descriptor(path: &Path) -> bool {
    let named = ["/dev/stdout", "/dev/stderr"];
    named.iter().any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Read without being changed: other threads make files, too.
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
