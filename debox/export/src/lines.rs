// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line for each call: as text in the order of time, or as values separated by commas for spreadsheets and plots.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use debox_history::{File, History};
use debox_model::history::Call;

use crate::exporter::{realtime, Exporter, CANNOT_WRITE};

/// Results and arguments up to this are numbers; larger ones are addresses or flags.
const SMALL: i64 = 1 << 32;

/// The columns of [`Values`], as in `debox/docs/history.md`.
const COLUMNS: &str = "start_ns,pid,tid,comm,call,ordinal,arg0,arg1,arg2,ret,error,wall_ns,cpu_ns,blocked_ns,runqueue_ns,\
                       preempted_ns,irq_ns,faults_minor,faults_major,read_bytes,write_bytes,label,in_flight,caller";

/// Start of the recording, process, thread, call with arguments, result, duration, and what it waited for.
pub struct Text<'a> {
    origin: i128,
    out: BufWriter<&'a mut dyn Write>,
    line: String,
}

pub struct Values<'a> {
    origin: i128,
    out: BufWriter<&'a mut dyn Write>,
    line: String,
}

/// The earliest start of a file, in nanoseconds since 1970.
fn origin(history: &History) -> i128 {
    let starts = history.files.iter();
    let starts = starts.map(|file| realtime(file, file.meta.started_ns));
    starts.min().unwrap_or(0)
}

impl<'a> Text<'a> {
    pub fn new(history: &History, out: &'a mut dyn Write) -> Text<'a> {
        Text {
            origin: origin(history),
            out: BufWriter::new(out),
            line: String::new(),
        }
    }
}

impl Exporter for Text<'_> {
    fn call(&mut self, file: &File, call: &Call) -> Result<()> {
        let at = realtime(file, call.start_ns) - self.origin;
        self.line.clear();
        text_line(&mut self.line, at, call).context(CANNOT_WRITE)?;
        self.out
            .write_all(self.line.as_bytes())
            .context(CANNOT_WRITE)
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.out.flush().context(CANNOT_WRITE)?;
        Ok(0)
    }
}

fn text_line(line: &mut String, at: i128, call: &Call) -> std::fmt::Result {
    let seconds = at as f64 / 1e9;
    let (comm, name) = (shown(&call.comm), shown(&call.name));
    write!(
        line,
        "{seconds:>13.6} {:>7} {:>7} {comm:<15} ",
        call.pid, call.tid
    )?;
    if call.number < 0 {
        write!(line, "{name}")?;
    } else {
        let [first, second, third] = call.args.map(argument);
        write!(line, "{name}({first}, {second}, {third})")?;
        let error = call.error();
        match error {
            _ if call.in_flight => write!(line, " has not returned")?,
            Some(error) => write!(line, " = {error}")?,
            None => write!(line, " = {}", argument(call.ret as u64))?,
        }
    }
    write!(line, " <{}>", kit_units::time(call.wall_ns))?;
    let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
    if let Some(sleep) = longest {
        write!(
            line,
            " asleep {}: {}",
            kit_units::time(call.budget.blocked_ns),
            shown(&sleep.label)
        )?;
        if let Some(resource) = &sleep.resource {
            write!(line, ", {}", shown(resource))?;
        }
    }
    line.push('\n');
    Ok(())
}

fn argument(word: u64) -> String {
    let signed = word as i64;
    match (-SMALL..SMALL).contains(&signed) {
        // A descriptor such as AT_FDCWD has 32 bits.
        true if word >> 31 == 1 => (word as u32 as i32).to_string(),
        true => signed.to_string(),
        false => format!("{word:#x}"),
    }
}

fn shown(text: &str) -> Cow<'_, str> {
    kit_console::printable(text)
}

impl<'a> Values<'a> {
    pub fn new(history: &History, out: &'a mut dyn Write) -> Result<Values<'a>> {
        let mut out = BufWriter::new(out);
        writeln!(out, "{COLUMNS}").context(CANNOT_WRITE)?;
        Ok(Values {
            origin: origin(history),
            out,
            line: String::new(),
        })
    }
}

impl Exporter for Values<'_> {
    fn call(&mut self, file: &File, call: &Call) -> Result<()> {
        let at = realtime(file, call.start_ns) - self.origin;
        self.line.clear();
        values_line(&mut self.line, at, call).context(CANNOT_WRITE)?;
        self.out
            .write_all(self.line.as_bytes())
            .context(CANNOT_WRITE)
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.out.flush().context(CANNOT_WRITE)?;
        Ok(0)
    }
}

fn values_line(line: &mut String, at: i128, call: &Call) -> std::fmt::Result {
    let perhaps = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    let longest = call.sleeps.iter().max_by_key(|sleep| sleep.blocked_ns);
    let budget = &call.budget;
    write!(
        line,
        "{at},{},{},{},{},{},{},{},{},",
        call.pid,
        call.tid,
        field(&call.comm),
        field(&call.name),
        call.ordinal,
        call.args[0],
        call.args[1],
        call.args[2],
    )?;
    if !call.in_flight {
        write!(line, "{}", call.ret)?;
    }
    let error = call.error().unwrap_or_default();
    write!(
        line,
        ",{error},{},{},{},{},{},{},{},{},{},{},{},{},{}",
        call.wall_ns,
        budget.cpu_ns,
        budget.blocked_ns,
        budget.runqueue_ns,
        budget.preempted_ns,
        perhaps(budget.irq_ns),
        call.faults_minor,
        call.faults_major,
        perhaps(call.read_bytes),
        perhaps(call.write_bytes),
        longest.map_or(Cow::Borrowed(""), |sleep| field(&sleep.label)),
        call.in_flight,
        call.caller.as_deref().map_or(Cow::Borrowed(""), field),
    )?;
    line.push('\n');
    Ok(())
}

/// As RFC 4180 has it. A spreadsheet must not take a name for a formula, nor a terminal for a command.
fn field(text: &str) -> Cow<'_, str> {
    let text = shown(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    match is_formula || text.contains([',', '"', '\n', '\r']) {
        true => {
            let guard = if is_formula { "'" } else { "" };
            Cow::Owned(format!("\"{guard}{}\"", text.replace('"', "\"\"")))
        }
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            pid: 7,
            tid: 8,
            comm: "nginx, a \"b\"".into(),
            name: "openat".into(),
            number: 257,
            args: [(-100i64) as u64, 0x7fff_1234_5678, 2],
            ret: -2,
            wall_ns: 1_500,
            ..Call::default()
        }
    }

    #[test]
    fn a_line_reads_like_a_call() {
        let mut line = String::new();
        text_line(&mut line, 2_500_000_000, &call()).expect("text");
        assert!(line.contains("2.500000       7       8 nginx"), "{line}");
        assert!(
            line.contains("openat(-100, 0x7fff12345678, 2) = ENOENT <1.5"),
            "{line}"
        );
        let returned = Call { ret: 3, ..call() };
        line.clear();
        text_line(&mut line, 0, &returned).expect("text");
        assert!(line.contains("= 3 <"), "{line}");
        assert_eq!(argument(0xffff_ff9c), "-100");
    }

    #[test]
    fn values_have_every_column_and_names_stay_names() {
        let mut line = String::new();
        let evil = Call {
            caller: Some("=1+1,x".into()),
            ..call()
        };
        values_line(&mut line, 5, &evil).expect("text");
        assert!(line.contains("\"nginx, a \"\"b\"\"\""), "{line}");
        assert!(line.ends_with(",\"'=1+1,x\"\n"), "{line}");
        let plain = Call {
            comm: "a".into(),
            caller: None,
            ..call()
        };
        line.clear();
        values_line(&mut line, 5, &plain).expect("text");
        assert_eq!(line.matches(',').count(), COLUMNS.matches(',').count());
    }
}
