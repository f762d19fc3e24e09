//! The user tap for the command: its shim laid out where the loader finds it, and programs that it
//! cannot work in refused.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use object::{Object, ObjectSection};

/// The shim's file, removed when the session ends.
pub struct Preload {
    directory: PathBuf,
}

impl Preload {
    pub fn install() -> Result<Preload> {
        let directory = std::env::temp_dir().join(format!("debox-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory); // of a debox that was killed, with the same number
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let preload = Preload { directory };
        fs::write(preload.library(), debox_preload::LIBRARY)
            .with_context(|| format!("cannot write {}", preload.library().display()))?;
        Ok(preload)
    }

    fn library(&self) -> PathBuf {
        self.directory.join("libdebox_preload.so")
    }

    /// The value of LD_PRELOAD: the shim first, so that it is the outermost.
    pub fn variable(&self) -> std::ffi::OsString {
        let mut value = self.library().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            value.push(":");
            value.push(others);
        }
        value
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Fails, in words, if the user tap cannot see the program's calls.
pub fn require_tappable(program: &Path) -> Result<()> {
    let program = interpreter(program)?;
    let shown = program.display();
    let metadata = fs::metadata(&program).with_context(|| format!("cannot read {shown}"))?;
    if metadata.mode() & 0o6000 != 0 {
        bail!("{shown} is set-user-id, and the loader ignores preloaded libraries there: {CURE}");
    }
    let bytes = fs::read(&program).with_context(|| format!("cannot read {shown}"))?;
    let Ok(elf) = object::File::parse(&*bytes) else {
        return Ok(()); // not ours to judge: execve will say
    };
    if !elf.is_64() || elf.architecture() != object::Architecture::X86_64 {
        bail!("{shown} is not a 64-bit x86 program, which the user tap is for: {CURE}");
    }
    if elf.section_by_name(".note.go.buildid").is_some()
        || elf.section_by_name(".go.buildinfo").is_some()
    {
        bail!("{shown} is a Go program, which makes its calls without libc: {CURE}");
    }
    let is_dynamic = elf
        .sections()
        .any(|section| section.name() == Ok(".interp"));
    if !is_dynamic {
        bail!("{shown} is statically linked, so nothing can be preloaded into it: {CURE}");
    }
    Ok(())
}

const CURE: &str = "use --tap kernel, which sees every program";

/// What runs in the end: the interpreter of a script.
fn interpreter(program: &Path) -> Result<PathBuf> {
    let mut program = program.to_path_buf();
    for _ in 0..4 {
        let Ok(file) = fs::File::open(&program) else {
            break;
        };
        let mut line = Vec::new();
        let mut reader = BufReader::new(file).take(256);
        if reader.read_until(b'\n', &mut line).is_err() || !line.starts_with(b"#!") {
            break;
        }
        let line = String::from_utf8_lossy(&line[2..]).into_owned();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { break };
        let is_env = Path::new(first)
            .file_name()
            .is_some_and(|name| name == "env");
        program = match words.next() {
            Some(name) if is_env => crate::command::find(name.as_ref())?,
            _ => PathBuf::from(first),
        };
    }
    Ok(program)
}
