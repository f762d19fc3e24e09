//! Makes one complete file from what a killed recorder left.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use kit_files::output::Output;
use kit_files::same;

use crate::meta::Meta;
use crate::parquet_file::tail_of;
use crate::read::{File, History};
use crate::schema::schema;
use crate::write::{Limits, Writer};

/// The content of the repaired file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    pub rows: u64,
    /// Rows from the tail, included in `rows`.
    pub from_tail: u64,
    /// Bytes of a group that was being written.
    pub cut_off: u64,
}

/// Rewrites the file with the rows of its tail, replaces the old one, and removes the tail. `None`:
/// there was nothing to do.
pub fn repair(path: &Path) -> Result<Option<Repaired>> {
    require_file(path)?;
    // The new file is made beside the file itself, not beside a link to it.
    let path =
        &fs::canonicalize(path).with_context(|| format!("cannot open {}", path.display()))?;
    let history = History::open(&[path])?;
    let file = itself(&history, path)?;
    if file.meta.complete && file.cut_off == 0 {
        return Ok(None);
    }
    let repaired = write(&history, path, path).with_context(|| {
        format!(
            "{} is left as it is (-o writes to another directory)",
            path.display()
        )
    })?;
    if history.files.len() > 1 {
        fs::remove_file(tail_of(path))
            .with_context(|| format!("cannot remove {}", tail_of(path).display()))?;
    }
    Ok(Some(repaired))
}

/// Writes the file and the rows of its tail to another file, or under the same name into another
/// directory, and changes nothing else. Also returns the path of the file that was written.
pub fn repair_into(path: &Path, output: &Path) -> Result<(PathBuf, Repaired)> {
    require_file(path)?;
    let output = match (output.is_dir(), path.file_name()) {
        (true, Some(name)) => output.join(name),
        _ => output.to_path_buf(),
    };
    let history = History::open(&[path])?;
    let tail = tail_of(path);
    same::refuse_inputs(&output, [path, &tail])?;
    let repaired = write(&history, path, &output)?;
    Ok((output, repaired))
}

fn require_file(path: &Path) -> Result<()> {
    ensure!(
        !path.is_dir(),
        "{} is a directory: name a file in it",
        path.display()
    );
    Ok(())
}

/// The file itself, not its tail.
fn itself<'a>(history: &'a History, path: &Path) -> Result<&'a File> {
    let found = history.files.iter().find(|file| file.path == path);
    found.with_context(|| format!("{} was not read", path.display()))
}

fn write(history: &History, from: &Path, path: &Path) -> Result<Repaired> {
    let file = itself(history, from)?;
    let whole = Output::create(path)?;
    let has_tail = history.files.len() > 1;
    // Records after a kill are missing.
    let meta = Meta {
        complete: file.meta.complete && !has_tail && file.cut_off == 0,
        ..file.meta.clone()
    };
    let clone = whole.file().try_clone()?;
    let mut writer = Writer::of_file(clone, path, meta, Limits::default())?;
    let fields = schema();
    let names: Vec<&str> = fields
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    for batch in history.batches(&names) {
        writer.append_batch(batch?.1)?;
    }
    let rows = writer.finish()?.rows;
    ensure!(
        rows == history.rows(),
        "{} says that it has {} rows, and has {rows}",
        file.path.display(),
        history.rows()
    );
    whole.commit()?;
    Ok(Repaired {
        rows,
        from_tail: history.rows() - file.rows,
        cut_off: file.cut_off,
    })
}
