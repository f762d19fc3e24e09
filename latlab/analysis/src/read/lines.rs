//! One JSON object per line, as in the output of `vegeta encode`, and in access logs.

use std::borrow::Cow;
use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{ensure, Context, Result};
use serde_json::{Map, Value};

use super::assembler::Assembler;
use super::columns::{Column, Columns};
use super::quantity::{SizeUnit, TimeUnit};
use super::{next_line, Options};
use crate::mode::Mode;
use crate::request::Run;

/// vegeta's lines contain the responses' bodies.
const LINE_MAX: usize = 64 << 20;
const DEPTH_MAX: usize = 3;
const NAMES_MAX: usize = 1024;

pub fn read(path: PathBuf, mut input: impl BufRead, options: &Options) -> Result<Run> {
    let mut rows: Option<(Assembler, Vec<String>)> = None;
    let mut line = Vec::new();
    let mut number = 0u64;
    while next_line(&mut input, &mut line, LINE_MAX)
        .with_context(|| format!("line {}", number + 1))?
    {
        number += 1;
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let object: Map<String, Value> = serde_json::from_slice(text)
            .with_context(|| format!("line {number} is not a JSON object"))?;
        if rows.is_none() {
            let mut names = Vec::new();
            flatten(&object, "", 0, &mut names);
            ensure!(
                names.len() <= NAMES_MAX,
                "line {number} has more than {NAMES_MAX} values"
            );
            rows = Some((assembler(path.clone(), &names, options)?, names));
        }
        if let Some((rows, names)) = &mut rows {
            let names = &*names;
            rows.add(|place| names.get(place).and_then(|name| look_up(&object, name)))
                .with_context(|| format!("line {number}"))?;
        }
    }
    Ok(match rows {
        Some((rows, _)) => rows.finish()?,
        None => Run::new(path, "ndjson"),
    })
}

fn assembler(path: PathBuf, names: &[String], options: &Options) -> Result<Assembler> {
    let place = |wanted: &str| names.iter().position(|name| name == wanted);
    let vegeta = (
        place("seq"),
        place("code"),
        place("timestamp"),
        place("latency"),
        place("bytes_in"),
    );
    if let (Some(_), Some(code), Some(timestamp), Some(latency), Some(bytes)) = vegeta {
        if !options.names_columns() {
            let column = |place: usize, unit| Column {
                place,
                name: names[place].clone(),
                unit: Some(unit),
            };
            let mut run = Run::new(path, "vegeta");
            run.mode = Some(Mode::Open);
            let columns = Columns {
                latency: column(latency, TimeUnit::Ns),
                size: Some(Column {
                    place: bytes,
                    name: names[bytes].clone(),
                    unit: Some(SizeUnit::Bytes),
                }),
                start: Some(column(timestamp, TimeUnit::Ns)),
                status: Some(code),
                error: place("error"),
                connection: None,
            };
            return Ok(Assembler::new(run, columns));
        }
    }
    Ok(Assembler::new(
        Run::new(path, "ndjson"),
        Columns::of(names, options)?,
    ))
}

/// Collects the names of an object's fields; those of nested objects are joined with dots.
fn flatten(object: &Map<String, Value>, before: &str, depth: usize, names: &mut Vec<String>) {
    for (name, value) in object {
        if names.len() > NAMES_MAX {
            return;
        }
        let name = format!("{before}{name}");
        match value {
            Value::Object(inner) if depth < DEPTH_MAX => {
                flatten(inner, &format!("{name}."), depth + 1, names);
            }
            _ => names.push(name),
        }
    }
}

fn look_up<'a>(object: &'a Map<String, Value>, name: &str) -> Option<Cow<'a, str>> {
    let value = match object.get(name) {
        Some(value) => value,
        None => {
            let (first, rest) = name.split_once('.')?;
            return look_up(object.get(first)?.as_object()?, rest);
        }
    };
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        other => Some(Cow::Owned(other.to_string())),
    }
}
