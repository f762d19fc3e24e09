//! Refuses programs in which the user tap cannot work, with an explanation, before anything is
//! started.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object};

/// Advice for commands that offer another tap.
pub const USE_KERNEL_TAP: &str = "use --tap kernel, which sees every program";

/// The kernel's limit.
const MAX_INTERPRETERS: usize = 5;

/// Fails, with an explanation, if the user tap cannot see the program's calls. `cure`: what the
/// user can do.
pub fn require_tappable(program: &Path, cure: &str) -> Result<()> {
    let Some(program) = interpreter(program) else {
        return Ok(()); // executing it will show the error
    };
    let shown = program.display();
    let unreadable = || format!("cannot read {shown} to see if the user tap works there: {cure}");
    let metadata = fs::metadata(&program).with_context(unreadable)?;
    if metadata.mode() & 0o6000 != 0 {
        bail!("{shown} is set-user-id, and the loader ignores preloaded libraries there: {cure}");
    }
    if has_capabilities(&program) {
        bail!(
            "{shown} has file capabilities, and the loader ignores preloaded libraries where \
             a program gains privilege: {cure}"
        );
    }
    if !metadata.is_file() {
        return Ok(()); // execve will show the error
    }
    let bytes = fs::read(&program).with_context(unreadable)?;
    match ElfFile::<FileHeader64<Endianness>>::parse(&*bytes) {
        Ok(elf) => require_tappable_elf(&program, &elf, cure),
        Err(_) if bytes.starts_with(b"\x7fELF\x01") => refuse_machine(&program, cure),
        Err(_) => Ok(()), // execve will show the error
    }
}

fn refuse_machine(program: &Path, cure: &str) -> Result<()> {
    let shown = program.display();
    bail!("{shown} is not a 64-bit x86 program, which the user tap is for: {cure}")
}

fn require_tappable_elf(
    program: &Path,
    elf: &ElfFile<FileHeader64<Endianness>>,
    cure: &str,
) -> Result<()> {
    let shown = program.display();
    if elf.architecture() != object::Architecture::X86_64 {
        return refuse_machine(program, cure);
    }
    let has = |section| elf.section_by_name(section).is_some();
    if has(".note.go.buildid") || has(".go.buildinfo") {
        bail!("{shown} is a Go program, which makes its calls without libc: {cure}");
    }
    let Some(loader) = loader_of(elf) else {
        bail!("{shown} is statically linked, so nothing can be preloaded into it: {cure}");
    };
    if is_foreign(&loader) {
        bail!(
            "{shown} is loaded by {}, and the user tap is for glibc's loader: {cure}",
            loader.display()
        );
    }
    Ok(())
}

/// The program's loader, from its program headers: section names may have been stripped.
fn loader_of(elf: &ElfFile<FileHeader64<Endianness>>) -> Option<PathBuf> {
    let (endian, data) = (elf.endian(), elf.data());
    let headers = elf.elf_header().program_headers(endian, data).ok()?;
    let path = headers
        .iter()
        .find_map(|header| header.interpreter(endian, data).ok().flatten())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

/// Whether a loader is not glibc's, judged by its exported symbols, since any name is possible. A
/// loader that cannot be read is left to execve.
fn is_foreign(loader: &Path) -> bool {
    let version = b"GLIBC_PRIVATE";
    is_file(loader)
        && fs::read(loader).is_ok_and(|bytes| !bytes.windows(version.len()).any(|at| at == version))
}

/// Other kinds of files may be endless, or block on open.
fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both names are valid C strings; without a buffer only the length is asked for.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

/// The program that runs in the end: a script's interpreter. `None` if it is unknown.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut program = program.to_path_buf();
    for _ in 0..MAX_INTERPRETERS {
        if !is_file(&program) {
            break;
        }
        let Some(line) = first_line(&program).ok().flatten() else {
            break;
        };
        let mut words = line.split_whitespace();
        let first = PathBuf::from(words.next()?);
        program = if first.file_name()? == "env" {
            crate::command::find(named_by_env(words)?.as_ref()).ok()?
        } else {
            first
        };
    }
    Some(program)
}

/// The program among the arguments of `env`: after its options and variables, or split from the
/// value of `-S`.
fn named_by_env<'a>(words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    for word in words {
        let word = word.strip_prefix("--split-string=").unwrap_or(word);
        let word = word.strip_prefix("-S").unwrap_or(word);
        match word {
            "" | "-i" | "-" | "--ignore-environment" | "-v" | "--debug" => {}
            _ if word.starts_with('-') => return None, // an option that may take a value
            _ if word.contains('=') => {}
            _ => return Some(word),
        }
    }
    None
}

/// The text after `#!`, if the file begins with it.
fn first_line(program: &Path) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(fs::File::open(program)?).take(256);
    reader.read_until(b'\n', &mut line)?;
    let rest = line.strip_prefix(b"#!");
    Ok(rest.map(|rest| String::from_utf8_lossy(rest).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_not_waited_for() {
        let name = format!("debox-tappable-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a writable directory");
        let (pipe, script) = (directory.join("pipe"), directory.join("script"));
        let path = std::ffi::CString::new(pipe.as_os_str().as_bytes()).expect("no zeros");
        // SAFETY: the path is a valid C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        fs::write(&script, format!("#!{}\n", pipe.display())).expect("room for it");
        let judged = [
            require_tappable(&pipe, ""),
            require_tappable(&script, ""),
            require_tappable("/dev/zero".as_ref(), ""),
        ];
        let _ = fs::remove_dir_all(&directory);
        assert!(judged.iter().all(Result::is_ok), "{judged:?}");
        assert!(!is_foreign(&pipe) && !is_foreign("/dev/zero".as_ref()));
    }

    #[test]
    fn env_names_its_program_after_options_and_variables() {
        let named = |line: &'static str| named_by_env(line.split_whitespace());
        assert_eq!(named("python3"), Some("python3"));
        assert_eq!(named("-S python3 -u"), Some("python3"));
        assert_eq!(named("-Spython3 -u"), Some("python3"));
        assert_eq!(named("--split-string=A=b python3"), Some("python3"));
        assert_eq!(named("-i A=b sh"), Some("sh"));
        assert_eq!(named("-u HOME sh"), None);
        assert_eq!(named("-S"), None);
    }
}
