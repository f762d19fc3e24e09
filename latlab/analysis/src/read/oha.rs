//! Reads the database that `oha --db-url` writes.

use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::quantity::whole;
use super::Options;
use crate::mode::Mode;
use crate::request::{Basis, Request, Run};

pub fn read(path: &Path, options: &Options) -> Result<Run> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).context("SQLite cannot open it")?;
    // A database can contain code: nothing in its schema is executed.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    let kind: Option<(String, String)> = database
        .prepare("SELECT type, coalesce(sql, '') FROM sqlite_schema WHERE name = 'oha'")
        .and_then(|mut found| {
            let mut rows = found.query([])?;
            let row = rows.next()?;
            row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
        })
        .context("its schema cannot be read: it is damaged")?;
    let Some((kind, made_by)) = kind else {
        bail!("it is an SQLite database without the table `oha` that `oha --db-url` makes");
    };
    let words: Vec<String> = made_by
        .split_whitespace()
        .take(2)
        .map(str::to_uppercase)
        .collect();
    ensure!(
        kind == "table" && words == ["CREATE", "TABLE"],
        "its `oha` is not the table that `oha --db-url` makes"
    );
    let columns = columns(&database)?;
    for needed in ["start", "end", "duration", "status", "len_bytes"] {
        ensure!(
            columns.iter().any(|name| name == needed),
            "its table `oha` has no column `{needed}`: it is not what `oha --db-url` makes"
        );
    }
    let has = |wanted: &str| columns.iter().any(|name| name == wanted);
    let mut filter = String::new();
    if has("run") {
        let wanted = match options.run {
            Some(run) => run,
            None => the_only_run(&database)?,
        };
        filter = format!(" WHERE run = {wanted}");
    } else {
        ensure!(
            options.run.is_none(),
            "it does not tell runs apart, so that there is no --run in it"
        );
    }
    let corrected = if has("start_latency_correction") {
        "start_latency_correction"
    } else {
        "NULL"
    };
    let query = format!(
        "SELECT start, {corrected}, \"end\", status, len_bytes FROM oha{filter} ORDER BY rowid"
    );
    let mut run = Run::new(path.to_path_buf(), "oha");
    let mut statement = database.prepare(&query).context("it cannot be read")?;
    let mut rows = statement.query([]).context("it cannot be read")?;
    let mut number = 0u64;
    let mut scheduled = 0u64;
    while let Some(row) = rows
        .next()
        .with_context(|| format!("row {} is damaged", number + 1))?
    {
        number += 1;
        let request = Row {
            start: seconds(row.get_ref(0)?),
            intended: seconds(row.get_ref(1)?),
            end: seconds(row.get_ref(2)?),
        };
        let (status, size) = (row.get_ref(3)?.as_i64(), row.get_ref(4)?.as_i64());
        let (Ok(status), Ok(size)) = (status, size) else {
            bail!("row {number}: the status or the size is no whole number");
        };
        if !(200..400).contains(&status) {
            run.fail(&format!("status {status}"));
            continue;
        }
        scheduled += u64::from(request.intended.is_some());
        let request = request.request(options.basis, size);
        run.push(request.with_context(|| format!("row {number}"))?)?;
    }
    run.caveats.push(
        "oha keeps no requests that got no reply: how many failed so, its own output says."
            .to_string(),
    );
    run.has_times = true;
    let is_open = scheduled > 0;
    run.mode = Some(if is_open { Mode::Open } else { Mode::Closed });
    run.basis = match options.basis {
        Some(Basis::FirstByte) => bail!("oha does not keep when the first byte came"),
        Some(Basis::Intended) if !is_open => {
            bail!("it has no intended starts: oha keeps them with --latency-correction")
        }
        Some(basis) => basis,
        None if is_open => Basis::Intended,
        None => Basis::Sent,
    };
    Ok(run)
}

fn columns(database: &Connection) -> Result<Vec<String>> {
    let damaged = "its schema cannot be read: it is damaged";
    // Generated columns would have to be computed; they are hidden ones (2 and 3).
    let mut found = database
        .prepare("SELECT name FROM pragma_table_xinfo('oha') WHERE hidden = 0")
        .context(damaged)?;
    let names = found
        .query_map([], |row| row.get::<_, String>(0))
        .context(damaged)?;
    names.collect::<Result<_, _>>().context(damaged)
}

fn the_only_run(database: &Connection) -> Result<i64> {
    let runs: Result<Vec<i64>, rusqlite::Error> = database
        .prepare("SELECT DISTINCT run FROM oha LIMIT 9")
        .and_then(|mut found| found.query_map([], |row| row.get(0))?.collect());
    let runs = runs.context("the column `run` cannot be read")?;
    match runs.as_slice() {
        [] => Ok(0),
        [run] => Ok(*run),
        runs => {
            let names: Vec<String> = runs.iter().map(i64::to_string).collect();
            bail!(
                "it has several runs ({}): say which with --run",
                names.join(", ")
            )
        }
    }
}

/// A valid number of seconds.
fn seconds(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Real(value) if value.is_finite() => Some(value),
        ValueRef::Integer(value) => Some(value as f64),
        _ => None,
    }
}

struct Row {
    start: Option<f64>,
    intended: Option<f64>,
    end: Option<f64>,
}

impl Row {
    fn request(&self, basis: Option<Basis>, size: i64) -> Result<Request> {
        let (Some(start), Some(end)) = (self.start, self.end) else {
            bail!("the start or the end is no number");
        };
        let begin = match basis {
            Some(Basis::Sent) => start,
            _ => self.intended.unwrap_or(start),
        };
        ensure!(end >= begin, "it ends before it begins");
        ensure!(begin.abs() < 1e9, "{begin} s is too long after the start");
        Ok(Request {
            begin_ns: (begin * 1e9).round() as i64,
            sent_ns: (start * 1e9).round() as i64,
            latency: whole((end - begin) * 1e9)?,
            size: u64::try_from(size).unwrap_or(Request::NO_SIZE),
            connection: 0,
            step: 0,
            is_warm_up: false,
        })
    }
}
