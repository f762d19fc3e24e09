// SPDX-License-Identifier: MIT OR Apache-2.0
//! Characterization vectors as files: JSON, one document for each.

use std::io::Write;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use kit_files::{input, output::Output};
use serde::{Deserialize, Serialize};

use crate::application::{self, Application};
use crate::machine::{self, Machine};

/// A vector has some ten kilobytes.
const BYTES_MAX: usize = 16 << 20;
/// The first bytes of every Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// What a file is, by its content.
#[derive(Debug)]
pub enum Found {
    Machine(Box<Machine>),
    Application(Box<Application>),
    /// A result of `hbench run`, or a recording of `debox record`.
    Parquet,
}

#[derive(Deserialize)]
struct Named {
    schema: String,
}

/// # Errors
///
/// It is no vector and no Parquet file, or damaged; the error names the file.
pub fn read(path: &Path) -> Result<Found> {
    // Whatever its length, a Parquet file is read by its own reader.
    let file = input::open(path)?;
    let mut first = [0; PARQUET.len()];
    use std::os::unix::fs::FileExt;
    if file.read_exact_at(&mut first, 0).is_ok() && first == PARQUET {
        return Ok(Found::Parquet);
    }
    let length = file.metadata().map_or(0, |found| found.len());
    let why = || format!("cannot use {} as a vector", path.display());
    if length > BYTES_MAX as u64 {
        return Err(anyhow::anyhow!("it has {length} bytes")).with_context(why);
    }
    let bytes = input::read(path)?;
    decode(&bytes).with_context(why)
}

/// # Errors
///
/// The bytes are no vector.
pub fn decode(bytes: &[u8]) -> Result<Found> {
    let named: Named = serde_json::from_slice(bytes).context(
        "it is no vector: make one with `hbench vector`, or name a result of `hbench run -o`",
    )?;
    let damaged = || format!("it is damaged, or not of the kind {}", named.schema);
    match named.schema.as_str() {
        machine::SCHEMA => {
            let found: Machine = serde_json::from_slice(bytes).with_context(damaged)?;
            found.check().with_context(damaged)?;
            Ok(Found::Machine(Box::new(found)))
        }
        application::SCHEMA => {
            let found: Application = serde_json::from_slice(bytes).with_context(damaged)?;
            found.check().with_context(damaged)?;
            Ok(Found::Application(Box::new(found)))
        }
        other => bail!(
            "it is of the kind {}, which this hbench does not know",
            kit_console::printable(&other.chars().take(60).collect::<String>())
        ),
    }
}

/// A machine's vector, or the result of `hbench run` from which one is made.
///
/// # Errors
///
/// It is neither; the error names the file.
pub fn machine(path: &Path) -> Result<Machine> {
    match read(path)? {
        Found::Machine(machine) => Ok(*machine),
        Found::Parquet => Ok(Machine::of(&crate::file::read(path)?)),
        Found::Application(_) => bail!(
            "{} is the vector of an application: name that of a machine, or a result of `hbench run -o`",
            path.display()
        ),
    }
}

/// # Errors
///
/// It is no application's vector; the error names the file.
pub fn application(path: &Path) -> Result<Application> {
    match read(path)? {
        Found::Application(application) => Ok(*application),
        Found::Machine(_) => bail!("{} is the vector of a machine: name that of an application", path.display()),
        Found::Parquet => bail!(
            "{} is no vector of an application: if it is a recording, make one with `hbench vector`",
            path.display()
        ),
    }
}

/// As it is written, with the newline at its end.
///
/// # Errors
///
/// A number in it is not finite.
pub fn encode(vector: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(vector)?;
    bytes.push(b'\n');
    ensure!(bytes.len() <= BYTES_MAX, "the vector is too large");
    Ok(bytes)
}

/// Writes the file whole, or leaves the previous one.
///
/// # Errors
///
/// It cannot be written; the error names the file.
pub fn write(path: &Path, vector: &impl Serialize) -> Result<()> {
    let bytes = encode(vector)?;
    let output = Output::create(path)?;
    (&output)
        .write_all(&bytes)
        .with_context(|| format!("cannot write {}", path.display()))?;
    output.commit()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::machine::tests::machine as some_machine;
    use crate::predict::tests::some_application;

    fn whole(kind: bool) -> Vec<u8> {
        let machine = some_machine(&[
            ("call.null", 100.0, None),
            ("file.reread/4K", 400.0, Some(4096)),
        ]);
        match kind {
            true => encode(&machine).expect("finite numbers"),
            false => encode(&some_application(Some(machine))).expect("finite numbers"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.vec");
        let made = some_application(Some(some_machine(&[("call.null", 100.0, None)])));
        write(&path, &made).expect("room");
        assert_eq!(application(&path).expect("it is whole"), made);
        let made = some_machine(&[("call.null", 0.1 + 0.2, None)]);
        write(&path, &made).expect("room");
        assert_eq!(machine(&path).expect("it is whole"), made);
    }

    #[test]
    fn vectors_fit_their_schemas() {
        for (kind, schema) in [
            (true, include_str!("../../schema/hbench-machine-1.json")),
            (
                false,
                include_str!("../../schema/hbench-application-1.json"),
            ),
        ] {
            let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
            let vector: serde_json::Value = serde_json::from_slice(&whole(kind)).expect("JSON");
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            let errors: Vec<String> = validator
                .iter_errors(&vector)
                .map(|e| e.to_string())
                .collect();
            assert!(errors.is_empty(), "{errors:?}");
            let required = schema["required"].as_array().expect("a list");
            assert_eq!(required.len(), vector.as_object().expect("an object").len());
        }
    }

    #[test]
    fn the_examples_are_vectors() {
        let machine = decode(include_bytes!("../../schema/examples/machine.vec"));
        let application = decode(include_bytes!("../../schema/examples/application.vec"));
        let (Ok(Found::Machine(machine)), Ok(Found::Application(application))) =
            (machine, application)
        else {
            panic!("they can be read");
        };
        let machines = [("example".to_string(), *machine.clone())];
        let found =
            crate::predict::predict(&application, &machines, Some(&machine)).expect("it is whole");
        assert!((found.machines[0].elapsed_ns / found.elapsed_ns - 1.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_vector_is_refused_in_one_sentence() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let told = |content: &[u8]| {
            std::fs::write(&path, content).expect("room");
            format!("{:#}", application(&path).expect_err("no vector"))
        };
        assert!(told(b"").contains("it is no vector"));
        assert!(told(b"PAR1 and more").contains("hbench vector"));
        assert!(told(b"{\"schema\": \"\\u001b[2Jhbench.machine/9\"}").contains("does not know"));
        assert!(!told(b"{\"schema\": \"\\u001b[2J\"}").contains('\u{1b}'));
        assert!(told(&whole(true)).contains("vector of a machine"));
        assert!(told(b"{\"schema\": \"hbench.application/1\"}").contains("damaged"));
        assert!(application(directory.path()).is_err());
        std::fs::write(&path, whole(false)).expect("room");
        let error = format!("{:#}", machine(&path).expect_err("an application"));
        assert!(error.contains("vector of an application"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn damaged_vectors_are_errors_or_vectors(
            kind in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = whole(kind);
            for (place, value) in changes {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            if cut.index(3) == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
            match decode(&bytes) {
                Ok(Found::Application(found)) => {
                    // What is accepted can be used: no figure is negative or no number.
                    let machine = some_machine(&[("call.null", 100.0, None)]);
                    if let Ok(prediction) = crate::predict::predict(&found, &[("m".to_string(), machine)], None) {
                        let one = &prediction.machines[0];
                        prop_assert!(one.elapsed_ns.is_finite() && one.elapsed_ns >= 0.0);
                    }
                }
                Ok(_) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
