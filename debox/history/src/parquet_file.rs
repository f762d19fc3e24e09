// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and properties of the Parquet files of a history.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

/// The path of the tail: the file with the rows that are still being gathered.
pub fn tail_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tail");
    path.with_file_name(name)
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The properties of files that are kept.
pub(crate) fn compressed() -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(1).context("zstd has no level 1")?;
    Ok(properties(Compression::ZSTD(level)))
}

/// Columns whose statistics readers use to find rows, or to see that a group has nothing in them. Not
/// all columns have statistics: each footer repeats those of all groups.
const STATISTICS: &[&str] = &[
    "time",
    "tid",
    "error",
    "wall_ns",
    "blocked_ns",
    "preempted_ns",
    "irq_ns",
    "spin_ns",
    "faults_minor",
    "faults_major",
    "restarted",
    "partial",
    "sleeps_left_out",
    "in_flight",
    "user_ns",
];
const STATISTICS_OF_SLEEPS: &[&str] = &[
    "begin_ns",
    "resource",
    "waker_comm",
    "owner_certainty",
    "owner_tid",
    "owner_comm",
    "owner_doing",
];

/// Columns in which nearly every value is distinct and slightly larger than the one before it.
const RISING: &[&str] = &["time", "ordinal"];

pub(crate) fn properties(compression: Compression) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true);
    let flat = STATISTICS.iter().map(|name| vec![name.to_string()]);
    let of_sleeps = STATISTICS_OF_SLEEPS.iter().map(|name| {
        ["sleeps", "list", "item", name]
            .map(str::to_string)
            .to_vec()
    });
    for path in flat.chain(of_sleeps) {
        properties =
            properties.set_column_statistics_enabled(path.into(), EnabledStatistics::Chunk);
    }
    for name in RISING {
        let path: ColumnPath = vec![name.to_string()].into();
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}
