//! Makes one whole file of what a killed recorder left.

use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};

use crate::meta::Meta;
use crate::read::History;
use crate::schema::schema;
use crate::write::{tail_of, Limits, Writer};

/// What was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    pub rows: u64,
    /// Of these, from the tail.
    pub from_tail: u64,
    /// Bytes of a group that was being written.
    pub cut_off: u64,
}

/// Writes the file anew, with the rows of its tail, and puts it in place of the old one; the tail is
/// removed. `None`: there was nothing to do.
pub fn repair(path: &Path) -> Result<Option<Repaired>> {
    let history = History::open(&[path])?;
    let [file, tail @ ..] = history.files.as_slice() else {
        unreachable!("there is a file, or an error");
    };
    if file.meta.complete && file.cut_off == 0 {
        return Ok(None);
    }
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let whole = tempfile::Builder::new()
        .prefix(".debox-repair-")
        .tempfile_in(directory.unwrap_or(Path::new(".")))
        .with_context(|| format!("cannot write beside {}", path.display()))?;
    // Not complete: what came after the kill is missing.
    let meta = Meta {
        complete: false,
        ..file.meta.clone()
    };
    let mut writer = Writer::create(whole.path(), meta, Limits::default())?;
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
        "{} says that it has {} rows, and has {rows}: it is left as it is",
        path.display(),
        history.rows()
    );
    let permissions = fs::metadata(path)?.permissions();
    fs::set_permissions(whole.path(), permissions)?;
    whole
        .persist(path)
        .with_context(|| format!("cannot replace {}", path.display()))?;
    if !tail.is_empty() {
        fs::remove_file(tail_of(path))
            .with_context(|| format!("cannot remove {}", tail_of(path).display()))?;
    }
    Ok(Some(Repaired {
        rows,
        from_tail: tail.iter().map(|file| file.rows).sum(),
        cut_off: file.cut_off,
    }))
}
