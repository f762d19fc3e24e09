// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures a program in one of the ways there are.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use debox::report::Headline;
use debox_real::{done, require, Language, Programs};
use debox_tests::{debox_binary, require_root, Group, Limit, Scratch};
use serde::Deserialize;
use serde_json::Value;

use crate::beside::Process;
use crate::corpus::{Case, Within};
use crate::PROGRAMS;

/// How a program is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Run,
    /// `record`, and `report` of the recording.
    Record,
    Attach,
}

/// All of them.
pub const WAYS: [Way; 3] = [Way::Run, Way::Record, Way::Attach];

/// So long a program does what it does.
const SECONDS: &str = "1.2";
/// The same where it is measured for a part of that.
const LONGER: &str = "8.0";
/// That part.
const PART: &str = "1.2s";
const MEMORY: u64 = 16 << 20;
const BYTES_PER_SECOND: u64 = 4 << 20;
const READS_PER_SECOND: u64 = 1000;

/// What a measurement said first, and all else.
#[derive(Debug)]
pub struct Headlined {
    pub sentence: String,
    pub report: Value,
    /// What stands beside the program.
    pub place: String,
}

/// All that one program needs, gone when it is dropped.
struct Stage {
    scratch: Scratch,
    group: Option<Group>,
    beside: Option<Process>,
}

impl Case {
    /// Its language, by the name of its file.
    pub fn language(&self) -> &'static str {
        match Path::new(self.program)
            .extension()
            .and_then(|it| it.to_str())
        {
            Some("c") => "C",
            Some("py") => "Python",
            Some("js") => "JavaScript",
            Some("go") => "Go",
            _ => "shell",
        }
    }

    /// Measures it. `Err` says why that cannot be done on this machine, or how it failed.
    pub fn measure(&self, way: Way, programs: &Programs) -> Result<Headlined, String> {
        require_root();
        let stage = self.stage()?;
        let place = stage.beside.as_ref().map(|beside| beside.said.clone());
        let mut place = place.unwrap_or_default();
        let report = match way {
            Way::Run => {
                let json = stage.scratch.file("report.json");
                let options = ["run", "--format", "json", "--output"];
                debox(&options, &json, &self.command(&stage, SECONDS, programs)?)?;
                read(&json)?
            }
            Way::Record => {
                let recording = stage.scratch.file("calls.parquet");
                debox(
                    &["record", "-o"],
                    &recording,
                    &self.command(&stage, SECONDS, programs)?,
                )?;
                let json = stage.scratch.file("report.json");
                let option = format!("--json={}", json.display());
                debox(&["report", &option], &recording, &[])?;
                read(&json)?
            }
            Way::Attach => {
                let words = self.command(&stage, LONGER, programs)?;
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                let program = Process::start(command)?;
                let json = stage.scratch.file("report.json");
                let pid = program.id().to_string();
                let options = [
                    "attach", "-p", &pid, "--for", PART, "--format", "json", "--output",
                ];
                debox(&options, &json, &[])?;
                read(&json)?
            }
        };
        if self.within == Within::NameServer {
            place = ":53".to_string();
        } else if let Some(name) = Path::new(&place).file_name() {
            place = name.to_string_lossy().into_owned();
        }
        let headline: Option<Headline> = serde_json::from_value(report["headline"].clone())
            .map_err(|error| format!("the headline cannot be read: {error}"))?;
        let sentence = headline
            .as_ref()
            .and_then(debox::report::headline_words::what_matters);
        Ok(Headlined {
            sentence: sentence.unwrap_or_default(),
            report,
            place,
        })
    }

    fn stage(&self) -> Result<Stage, String> {
        let scratch = Scratch::new();
        let group = match self.within {
            Within::CpuQuota => Some(Group::new(Limit::Cpu)?),
            Within::Memory => Some(Group::new(Limit::Memory(MEMORY))?),
            Within::SlowDisk => Some(Group::new(Limit::Writes(scratch.path(), BYTES_PER_SECOND))?),
            Within::SlowReads => Some(Group::new(Limit::Reads(scratch.path(), READS_PER_SECOND))?),
            Within::Nothing | Within::FirstCpu | Within::NameServer => None,
        };
        let beside = match self.beside {
            Some(role) => Some(Process::beside(role, scratch.path())?),
            None => None,
        };
        Ok(Stage {
            scratch,
            group,
            beside,
        })
    }

    /// The program's command line.
    fn command(
        &self,
        stage: &Stage,
        seconds: &str,
        programs: &Programs,
    ) -> Result<Vec<OsString>, String> {
        let wrap = match (self.within, &stage.group) {
            (_, Some(group)) => vec!["sh".into(), "-c".into(), group.enter(), "sh".into()],
            (Within::FirstCpu, _) => {
                let first =
                    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); \
                             os.execvp(sys.argv[1], sys.argv[1:])";
                vec!["python3".to_string(), "-c".to_string(), first.to_string()]
            }
            (Within::NameServer, _) => {
                let mount = format!(
                    "mount --bind {}/resolv.conf /etc/resolv.conf && exec \"$@\"",
                    stage.scratch.path().display()
                );
                let words = ["unshare", "-m", "sh", "-c", &mount, "sh"];
                words.map(str::to_string).to_vec()
            }
            _ => Vec::new(),
        };
        let mut words: Vec<OsString> = wrap.into_iter().map(OsString::from).collect();
        let source = Path::new(PROGRAMS).join(self.program);
        match self.language() {
            "C" => words.push(programs.built(&source, Language::C)?.into()),
            "Go" => words.push(programs.built(&source, Language::Go)?.into()),
            "Python" => words.extend([require("python3").into(), source.into()]),
            "JavaScript" => words.extend([require("node").into(), source.into()]),
            _ => words.extend(["bash".into(), source.into()]),
        }
        words.push(seconds.into());
        words.push(stage.scratch.path().into());
        if let Some(beside) = &stage.beside {
            words.push(beside.said.clone().into());
        }
        Ok(words)
    }
}

/// Runs `debox OPTIONS FILE [-- COMMAND]`.
fn debox(options: &[&str], file: &Path, command: &[OsString]) -> Result<(), String> {
    let mut debox = Command::new(debox_binary());
    debox.args(options).arg(file);
    if !command.is_empty() {
        debox.arg("--").args(command);
    }
    done(debox.stdout(Stdio::null())).map(drop)
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Flame trees of Python programs are deeper than is read by default.
    let mut json = serde_json::Deserializer::from_slice(&text);
    json.disable_recursion_limit();
    let report = Value::deserialize(&mut json);
    report.map_err(|error| format!("{}: {error}", path.display()))
}
