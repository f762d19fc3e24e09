//! The Python package `debox`: a thin layer over the engine's in-band interface.
//!
//! `python/debox/_debox.pyi` documents each name for Python.

mod errors;
mod interpreter;
mod records;
mod scopes;

use pyo3::prelude::*;

use engine::inband;
use engine::record::{self, HISTORY_MAX};
use engine::{Detail, Tap};

use errors::{raise, ArgumentError};
use records::{Explanation, Last, Record};

/// Loads the probes and starts monitoring this process, with all its threads and children.
///
/// Needs root, or a running `debox broker`. tap is None, "kernel" or "user".
#[pyfunction]
#[pyo3(signature = (*, max_threads=1024, sleeps=true, irq=false, cpu=false, tap=None))]
fn enable(
    py: Python<'_>,
    max_threads: u32,
    sleeps: bool,
    irq: bool,
    cpu: bool,
    tap: Option<&str>,
) -> PyResult<()> {
    let tap = match tap {
        None => None,
        Some("kernel") => Some(Tap::Kernel),
        Some("user") => Some(Tap::User),
        Some(other) => {
            return Err(ArgumentError::new_err(format!(
                "tap is \"kernel\", \"user\" or None, not {other:?}"
            )))
        }
    };
    let options = inband::Options {
        max_threads,
        detail: Detail {
            sleeps,
            irq,
            cpu,
            ..Detail::default()
        },
        tap,
    };
    interpreter::find();
    // Lets other Python threads run meanwhile.
    py.detach(|| inband::enable(&options)).map_err(raise)
}

/// Ends monitoring and takes the probes out of the kernel.
#[pyfunction]
fn disable(py: Python<'_>) -> PyResult<()> {
    py.detach(inband::disable).map_err(raise)
}

/// Whether this process has enabled DeBox.
#[pyfunction]
fn is_enabled() -> bool {
    inband::is_enabled()
}

/// The record of this thread's last call, read in place: makes no call, copies nothing. None if there is none.
///
/// The futex calls by which threads hand over the interpreter's lock are skipped, unless interpreter=True. The record
/// is valid until the thread's eighth call after it; copy() keeps it.
#[pyfunction]
#[pyo3(signature = (*, interpreter=false))]
fn last(interpreter: bool) -> Option<Last> {
    // First of all: an allocation might make a call of its own.
    let found = match interpreter {
        true => inband::last(),
        false => inband::last_where(|last| !interpreter::made(last.call(), last.args())),
    };
    found.map(Last::new)
}

/// Copies of the last calls of this thread, or of the thread `tid`, the newest first.
#[pyfunction]
#[pyo3(signature = (n=HISTORY_MAX, *, tid=None, interpreter=false))]
fn history(n: usize, tid: Option<i32>, interpreter: bool) -> PyResult<Vec<Record>> {
    let mut records = [record::Record::default(); HISTORY_MAX];
    let found = match tid {
        None => inband::history(&mut records),
        Some(tid) => inband::history_of(tid, &mut records),
    };
    let copied = found.map_err(raise)?;
    let is_wanted = |record: &&record::Record| {
        interpreter || !interpreter::made(record.call.into(), record.args)
    };
    let kept = records[..copied].iter().filter(is_wanted).take(n);
    Ok(kept.map(|record| Record::new(*record)).collect())
}

/// Explains the sleeps of a record, or the one with that index.
#[pyfunction]
#[pyo3(signature = (record, index=None))]
fn explain(
    py: Python<'_>,
    record: records::Either<'_>,
    index: Option<usize>,
) -> PyResult<Vec<Explanation>> {
    let record = record.copy()?;
    let used = record.sleeps().len();
    let wanted = match index {
        None => 0..used,
        Some(index) if index < used => index..index + 1,
        Some(index) => {
            return Err(ArgumentError::new_err(format!(
                "the record has {used} sleeps, and none of index {index}"
            )))
        }
    };
    let explained: Result<Vec<_>, _> = py.detach(|| {
        wanted
            .map(|index| inband::explain(&record, index))
            .collect()
    });
    let explained = explained.map_err(raise)?;
    Ok(explained
        .iter()
        .map(|one| Explanation::from(&**one))
        .collect())
}

/// Stops recording this thread's calls, until resume(). Scopes go on.
#[pyfunction]
fn pause() -> PyResult<()> {
    inband::pause().map_err(raise)
}

/// Records this thread's calls again, after pause().
#[pyfunction]
fn resume() -> PyResult<()> {
    inband::resume().map_err(raise)
}

#[pymodule]
fn _debox(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(enable, module)?)?;
    module.add_function(wrap_pyfunction!(disable, module)?)?;
    module.add_function(wrap_pyfunction!(is_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(last, module)?)?;
    module.add_function(wrap_pyfunction!(history, module)?)?;
    module.add_function(wrap_pyfunction!(explain, module)?)?;
    module.add_function(wrap_pyfunction!(pause, module)?)?;
    module.add_function(wrap_pyfunction!(resume, module)?)?;
    module.add_function(wrap_pyfunction!(scopes::scope, module)?)?;
    module.add_class::<Last>()?;
    module.add_class::<Record>()?;
    module.add_class::<records::Sleep>()?;
    module.add_class::<records::CpuOwner>()?;
    module.add_class::<Explanation>()?;
    module.add_class::<scopes::Scope>()?;
    module.add("HISTORY_MAX", HISTORY_MAX)?;
    module.add("RESTARTED", record::RESTARTED)?;
    module.add("PARTIAL", record::PARTIAL)?;
    module.add("USER_TAP", record::USER_TAP)?;
    module.add("NESTED", record::NESTED)?;
    errors::add(module)
}
