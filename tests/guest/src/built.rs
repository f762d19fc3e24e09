// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test programs, as listed by cargo's build messages, and the tests that a guest runs.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

use crate::fetch::output;
use crate::inside::Plan;
use crate::inside::Program;
use crate::left_out;
use crate::left_out::Set;
use crate::left_out::WITH_PROBES;

/// Everything built for the guests.
#[derive(Debug)]
pub struct Built {
    programs: Vec<Program>,
    scratch: Vec<PathBuf>,
    shown: Vec<PathBuf>,
}

impl Built {
    /// Reads cargo's messages, and lists each program's tests.
    pub fn read(path: &Path, only: &[String], set: Set) -> Result<Built> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let messages: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let mut programs = Vec::new();
        for (suite, path) in test_programs(&messages) {
            let listed = output(Command::new(&path).args(["--list", "--format", "terse"]))?;
            let tests = tests_listed(&listed)
                .filter(|test| only.is_empty() || only.iter().any(|part| test.contains(part)))
                .filter(|test| set.has(&suite, test))
                .map(str::to_string)
                .collect();
            programs.push(Program { suite, path, tests });
        }
        if only.is_empty() {
            check_names(&programs, set)?;
        }
        programs.sort_by(|one, other| one.suite.cmp(&other.suite));
        anyhow::ensure!(
            programs.iter().any(|program| !program.tests.is_empty()),
            "no tests were built"
        );
        Ok(Built {
            programs,
            scratch: build_directories(&messages),
            shown: directories_in_use()?,
        })
    }

    /// The plan for the named kernel's guest.
    pub fn plan(&self, kernel: &str) -> Plan {
        let mut programs = self.programs.clone();
        for program in &mut programs {
            let suite = program.suite.clone();
            program
                .tests
                .retain(|test| left_out::reason(kernel, &suite, test).is_none());
        }
        programs.retain(|program| !program.tests.is_empty());
        Plan {
            programs,
            scratch: self.scratch.clone(),
            shown: self.shown.clone(),
            environment: COMPILERS
                .iter()
                .filter_map(|name| Some((name.to_string(), std::env::var(name).ok()?)))
                .collect(),
            ..Plan::default()
        }
    }
}

/// The plan for a guest that boots the broker's unit.
pub fn unit_plan() -> Result<Plan> {
    let own = std::env::current_exe()?;
    let built = own.parent().context("cargo's layout")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let sources = sources.context("this crate is two levels below the sources")?;
    let unit = sources.join("scripts/debox-broker.service.in");
    Ok(Plan {
        unit: Some((built.to_path_buf(), unit)),
        ..Plan::default()
    })
}

/// Environment variables that are needed to find compilers.
const COMPILERS: [&str; 4] = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"];

/// Ensures that a renamed test is neither left out nor included by accident.
fn check_names(programs: &[Program], set: Set) -> Result<()> {
    let tests_of = |suite: &str| programs.iter().find(|program| program.suite == suite);
    for (suite, test) in left_out::QUICK.iter().filter(|_| set == Set::Quick) {
        let is_there =
            tests_of(suite).is_some_and(|program| program.tests.iter().any(|name| name == test));
        anyhow::ensure!(
            is_there,
            "there is no test {test} in {suite}: see left_out.rs"
        );
    }
    for (suite, _) in left_out::ON_TOP {
        anyhow::ensure!(
            tests_of(suite).is_some(),
            "there is no test program {suite}: see left_out.rs"
        );
    }
    Ok(())
}

/// Names and paths of the whole-system tests. Unit tests need no other kernel, nor do packages that load no probes.
fn test_programs(messages: &[Value]) -> Vec<(String, PathBuf)> {
    let is_test = |message: &&Value| {
        message["reason"] == "compiler-artifact"
            && message["target"]["kind"][0] == "test"
            && WITH_PROBES.contains(&package(message))
    };
    let place = |message: &Value| {
        let name = message["target"]["name"].as_str()?;
        let path = message["executable"].as_str()?;
        Some((name.to_string(), path.into()))
    };
    messages.iter().filter(is_test).filter_map(place).collect()
}

/// `path+file:///DIRECTORY#NAME@VERSION`, or without `NAME@` if that is the directory's name.
fn package(message: &Value) -> &str {
    let id = message["package_id"].as_str().unwrap_or_default();
    let (directory, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => directory.rsplit('/').next().unwrap_or_default(),
    }
}

/// Where the tests find their programs, and where they write files.
fn build_directories(messages: &[Value]) -> Vec<PathBuf> {
    let own = |message: &&Value| {
        let package = message["package_id"].as_str().unwrap_or_default();
        message["reason"] == "build-script-executed" && package.contains("debox-tests")
    };
    let directory = |message: &Value| Some(message["out_dir"].as_str()?.into());
    messages.iter().filter(own).filter_map(directory).collect()
}

/// The directory of the sources, some of which tests read, and cargo's target directory.
fn directories_in_use() -> Result<Vec<PathBuf>> {
    let own = std::env::current_exe()?;
    // target/PROFILE/NAME
    let target = own.ancestors().nth(2).context("cargo's layout")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let sources = sources.context("this crate is two levels below the sources")?;
    Ok(vec![sources.to_path_buf(), target.to_path_buf()])
}

/// The names in what `--list --format terse` prints.
fn tests_listed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_suffix(": test"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_system_tests_are_found_and_nothing_else() {
        let artifact = |package: &str, kind: &str, name: &str, executable: Value| {
            json!({"reason": "compiler-artifact", "executable": executable,
                   "package_id": format!("path+file:///w/{package}"),
                   "target": {"kind": [kind], "name": name}})
        };
        let messages = [
            artifact(
                "tests/suite#debox-tests@0.1.0",
                "test",
                "waits",
                json!("/t/waits-1"),
            ),
            artifact("debox#0.1.0", "test", "inband", json!("/t/inband-1")),
            artifact(
                "flash/server#flash@0.1.0",
                "test",
                "serve",
                json!("/t/serve-1"),
            ),
            artifact("debox#0.1.0", "lib", "debox", json!("/t/debox-1")),
            artifact("debox#0.1.0", "test", "unbuilt", Value::Null),
            json!({"reason": "build-finished", "success": true}),
        ];
        let found = test_programs(&messages);
        let expected = [("waits", "/t/waits-1"), ("inband", "/t/inband-1")];
        assert_eq!(
            found,
            expected.map(|(name, path)| (name.to_string(), PathBuf::from(path)))
        );
    }

    #[test]
    fn only_the_tests_own_build_directory_is_theirs() {
        let script = |package: &str, directory: &str| json!({"reason": "build-script-executed", "package_id": package, "out_dir": directory});
        let messages = [
            script(
                "path+file:///w/tests/suite#debox-tests@0.1.0",
                "/t/suite/out",
            ),
            script("registry+https://example.org#libc@0.2.1", "/t/libc/out"),
        ];
        assert_eq!(
            build_directories(&messages),
            [PathBuf::from("/t/suite/out")]
        );
    }

    #[test]
    fn benches_are_no_tests() {
        let listed = "a_wait: test\nmodule::another: test\nspeed: benchmark\n";
        let names: Vec<&str> = tests_listed(listed).collect();
        assert_eq!(names, ["a_wait", "module::another"]);
    }
}
