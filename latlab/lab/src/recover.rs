//! Converts the spool of a killed run to Parquet.

use std::path::Path;

use anyhow::{bail, ensure, Context, Result};

use crate::rows::{
    process_file, remove_spool, take_spool, Description, Next, ParquetFile, SpoolReader,
};
use crate::units::count;
use crate::workload::Workload;

/// The contents of a spool.
#[derive(Debug, Default, PartialEq)]
pub struct Recovered {
    pub rows: u64,
    pub failures: u64,
    /// When the last request ended or was given up.
    pub last_ns: i64,
    /// The planned duration of the run.
    pub duration_ns: Option<i64>,
    /// What could not be recovered, in sentences.
    pub left_out: Vec<String>,
}

/// Options of `latlab recover`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Do not remove the spool.
    pub keep: bool,
    /// If rows are damaged, take those before the damage.
    pub despite_damage: bool,
}

/// Makes `output` from what a run has left in `spool`, which is then removed.
pub fn recover(spool: &Path, output: &Path, options: Options) -> Result<Recovered> {
    let description = Description::read(spool)?;
    let processes = description.processes;
    let _locks = take_spool(spool, processes)?;
    let workload = Workload::new(&description.spec, description.seed, 0.0, 0, 1)
        .with_context(|| format!("{} is damaged", spool.display()))?;
    let spooled: Vec<_> = (0..processes).map(|n| process_file(spool, n)).collect();
    kit_files::same::refuse_inputs(output, spooled.iter().map(|path| path.as_path()))?;
    let mut file = ParquetFile::create(output)?;
    let mut recovered = Recovered {
        duration_ns: description.meta.duration_ns,
        ..Recovered::default()
    };
    let mut damaged = false;
    for process in 0..processes {
        let path = process_file(spool, process);
        if !path.exists() {
            continue;
        }
        let cannot = || format!("cannot read {}", path.display());
        let mut reader = SpoolReader::open(&path).with_context(cannot)?;
        let before = recovered.rows;
        loop {
            match reader.read_next().with_context(cannot)? {
                Next::Row(row) => {
                    file.push(&row, &workload)?;
                    recovered.rows += 1;
                    recovered.failures += u64::from(row.failure.is_some());
                    let end = row.end_ns.unwrap_or(row.start_ns);
                    recovered.last_ns = recovered.last_ns.max(end);
                }
                Next::End { torn: 0 } => break,
                Next::End { torn } => {
                    let text = format!(
                        "process-{process} ends within a row, which is left out ({torn} bytes)"
                    );
                    recovered.left_out.push(text);
                    break;
                }
                Next::Damaged => {
                    let sound = count(recovered.rows - before);
                    ensure!(
                        options.despite_damage,
                        "{} is damaged behind {sound} rows: --despite-damage takes those",
                        path.display()
                    );
                    let text = format!("process-{process} is damaged: what is behind its first {sound} rows is left out");
                    recovered.left_out.push(text);
                    damaged = true;
                    break;
                }
            }
        }
    }
    if recovered.rows == 0 {
        bail!(
            "{} has no rows: the run was killed before any were written",
            spool.display()
        );
    }
    let mut meta = description.meta;
    let mut troubles = vec!["latlab was killed before the run was over".to_string()];
    troubles.extend(recovered.left_out.iter().cloned());
    meta.refused = Some(troubles.join("; "));
    file.finish(&meta)?;
    if !options.keep && !damaged {
        remove_spool(spool, processes).with_context(|| {
            format!(
                "cannot remove {}, which is not needed any more",
                spool.display()
            )
        })?;
    }
    Ok(recovered)
}
