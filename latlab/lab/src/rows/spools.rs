//! The directory of a run's spools: one file for each generator process, and a description of the run, so
//! that the rows can be read if latlab itself was killed.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

use super::Meta;
use crate::fileset::MAX_DIRECTORIES;
use crate::leftover;
use crate::workload::Spec;

const SCHEMA: &str = "latlab.spool/2";
const DESCRIPTION: &str = "run.json";
/// Enough for an access log of some ten million requests.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 30;
/// Prefixes of directories beside the output file, which are hidden, and of those among the temporary
/// files, which are not.
const PREFIXES: [&str; 2] = [".latlab-run-", "latlab-run-"];

/// Description of a run, as far as it is known at its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    schema: String,
    pub meta: Meta,
    pub spec: Spec,
    pub seed: u64,
    pub processes: u16,
}

impl Description {
    pub fn new(meta: Meta, spec: Spec, seed: u64, processes: u16) -> Description {
        Description {
            schema: SCHEMA.to_string(),
            meta,
            spec,
            seed,
            processes,
        }
    }

    /// Reads a directory that may come from another user.
    pub fn read(directory: &Path) -> Result<Description> {
        let path = directory.join(DESCRIPTION);
        let no_spool = || {
            format!(
                "{} is not what a run of latlab leaves: it has no {DESCRIPTION} that can be read",
                directory.display()
            )
        };
        let mut text = Vec::new();
        let file = plain_file(&path).with_context(no_spool)?;
        file.take(DESCRIPTION_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .with_context(no_spool)?;
        ensure!(
            text.len() as u64 <= DESCRIPTION_BYTES_MAX,
            "{} is too large to be what latlab wrote",
            path.display()
        );
        let description: Description = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not what latlab wrote, or damaged", path.display()))?;
        ensure!(
            description.schema == SCHEMA && description.meta.schema == super::SCHEMA,
            "{} is of another version of latlab ({})",
            path.display(),
            description.schema.escape_default()
        );
        if let Spec::Specweb { set, .. } = &description.spec {
            ensure!(
                (1..=MAX_DIRECTORIES).contains(&set.directories),
                "{} is damaged: no file set has {} directories",
                path.display(),
                set.directories
            );
        }
        Ok(description)
    }
}

/// Opens a regular file, which can be read to its end.
pub fn plain_file(path: &Path) -> Result<File> {
    let cannot = || format!("cannot read {}", path.display());
    let found = std::fs::symlink_metadata(path).with_context(cannot)?;
    ensure!(found.is_file(), "{} is no plain file", path.display());
    File::open(path).with_context(cannot)
}

/// The file of one process's rows.
pub fn process_file(directory: &Path, process: u16) -> PathBuf {
    directory.join(format!("process-{process}"))
}

/// The directory of a running run. Dropping the value removes it.
pub struct Spools {
    directory: tempfile::TempDir,
    /// Held during the run, so that others see that the directory is in use.
    _lock: File,
}

impl Spools {
    /// Creates it beside the output file, or among the temporary files.
    pub fn create(output: Option<&Path>, description: &Description) -> Result<Spools> {
        let cannot = "cannot make a directory for what is measured";
        let place = place(output);
        report_leftover(&place);
        let [hidden, plain] = PREFIXES;
        let prefix = if output.is_some() { hidden } else { plain };
        let directory = tempfile::Builder::new()
            .prefix(&format!("{prefix}{}-", std::process::id()))
            .tempdir_in(place)
            .context(cannot)?;
        let description_file = directory.path().join(DESCRIPTION);
        let mut file = kit_files::output::create_new(&description_file).context(cannot)?;
        // Without file locks, only the process number shows that the directory is in use.
        let _ = file.try_lock();
        file.write_all(&serde_json::to_vec(description)?)
            .context("cannot write down what is measured")?;
        Ok(Spools {
            directory,
            _lock: file,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory.
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }
}

fn place(output: Option<&Path>) -> PathBuf {
    match output.map(Path::parent) {
        None => std::env::temp_dir(),
        Some(Some(parent)) if parent != Path::new("") => parent.to_path_buf(),
        Some(_) => std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
    }
}

/// What to do with an abandoned directory.
pub fn advice(directory: &Path) -> String {
    format!(
        "`latlab recover {} -o rows.parquet` makes Parquet of it",
        directory.display()
    )
}

/// Directories in a place that killed runs have left.
fn left(place: &Path) -> Vec<PathBuf> {
    leftover::abandoned(place, &PREFIXES, |directory| directory.join(DESCRIPTION))
}

fn about_left(directory: &Path) -> String {
    format!(
        "{} has what a run measured that was killed: {}; else remove it",
        directory.display(),
        advice(directory)
    )
}

/// Sentences about what killed runs have left here and among the temporary files.
pub fn remove_leftover() -> Vec<String> {
    let here = left(Path::new("."));
    let temporary = left(&std::env::temp_dir());
    here.iter()
        .chain(&temporary)
        .map(|path| about_left(path))
        .collect()
}

/// Prints, once for each place, what killed runs have left there.
fn report_leftover(place: &Path) {
    static TOLD: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());
    let Ok(mut told) = TOLD.lock() else {
        return;
    };
    for directory in left(place) {
        if !told.contains(&directory) {
            leftover::say(&[about_left(&directory)]);
            told.push(directory);
        }
    }
}

/// Takes an abandoned directory, so that no other process does. Processes that still write to it get some time
/// to end: a generator process ends after its latlab.
pub fn take(directory: &Path, processes: u16) -> Result<Vec<File>> {
    let mut locks = Vec::new();
    let description = plain_file(&directory.join(DESCRIPTION))?;
    if !leftover::lock(&description) {
        bail!(
            "{} belongs to a run that is still running: Ctrl-C ends it, and keeps its rows",
            directory.display()
        );
    }
    locks.push(description);
    for process in 0..processes {
        let path = process_file(directory, process);
        if !path.exists() {
            continue;
        }
        let file = plain_file(&path)?;
        ensure!(
            leftover::lock_patiently(&file),
            "a generator process still writes to {}: try again when it has ended",
            path.display()
        );
        locks.push(file);
    }
    Ok(locks)
}

/// Removes only what a run has created.
pub fn remove(directory: &Path, processes: u16) -> std::io::Result<()> {
    for process in 0..processes {
        let path = process_file(directory, process);
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    std::fs::remove_file(directory.join(DESCRIPTION))?;
    std::fs::remove_dir(directory)
}
