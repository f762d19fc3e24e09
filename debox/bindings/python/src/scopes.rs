//! `with debox.scope("request") as s:`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use engine::inband::{self, Faults, Start, Sums};

use crate::errors::{raise, Error};

/// A piece of work of one thread, whose time is summed up.
#[pyclass(module = "debox")]
pub struct Scope {
    #[pyo3(get)]
    name: String,
    faults: Faults,
    start: Option<Result<Start, inband::Error>>,
    sums: Option<Result<Sums, inband::Error>>,
}

/// Sums up what this thread does from here to there, exactly, however many calls it makes:
///
///     with debox.scope("request") as s:
///         handle(request)
///     log.info("%s %s", s.name, s)
///
/// faults=True counts page faults of the program's own code, too. If nothing is measured, the sums are None and `why`
/// says why. A scope must end on the thread it began on. Under asyncio, other tasks count from the first await on.
#[pyfunction]
#[pyo3(signature = (name="", *, faults=false))]
pub fn scope(name: &str, faults: bool) -> Scope {
    Scope {
        name: name.to_string(),
        faults: match faults {
            true => Faults::All,
            false => Faults::InCalls,
        },
        start: None,
        sums: None,
    }
}

impl Scope {
    /// The sums so far, or why there are none. Misuse raises; a scope that is not measured does not.
    fn read(&self) -> PyResult<Result<Sums, inband::Error>> {
        let start = self.start.as_ref().ok_or_else(|| {
            Error::new_err("the scope has not begun: use it in a with statement, or call begin()")
        })?;
        match start.clone().and_then(|start| start.sums()) {
            Err(error @ inband::Error::OtherThread) => Err(raise(error)),
            read => Ok(read),
        }
    }

    /// The sums of an ended scope, or `None` if there are none.
    fn ended(&self) -> PyResult<Option<&Sums>> {
        match &self.sums {
            Some(sums) => Ok(sums.as_ref().ok()),
            None => Err(Error::new_err(
                "the scope has not ended: so_far() has the sums until now",
            )),
        }
    }

    fn number(&self, of: impl FnOnce(&Sums) -> u64) -> PyResult<Option<u64>> {
        Ok(self.ended()?.map(of))
    }
}

#[pymethods]
impl Scope {
    /// Begins it, as `with` does.
    fn begin(&mut self) {
        self.sums = None;
        self.start = Some(Start::now(self.faults));
    }

    /// Ends it, as the end of `with` does.
    fn end(&mut self) -> PyResult<()> {
        self.sums = Some(self.read()?);
        Ok(())
    }

    /// The sums so far, as a scope that has ended.
    fn so_far(&self) -> PyResult<Scope> {
        let sums = self.read()?;
        Ok(Scope {
            name: self.name.clone(),
            faults: self.faults,
            start: self.start.clone(),
            sums: Some(sums),
        })
    }

    fn __enter__(mut slf: PyRefMut<'_, Self>) -> PyRefMut<'_, Self> {
        slf.begin();
        slf
    }

    /// Does not replace an exception raised inside the scope by one of its own.
    fn __exit__(
        &mut self,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        match self.read() {
            Ok(sums) => self.sums = Some(sums),
            Err(_) if !kind.is_none() => self.sums = Some(Err(inband::Error::OtherThread)),
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    #[getter]
    fn measured(&self) -> PyResult<bool> {
        Ok(self.ended()?.is_some())
    }

    #[getter]
    fn why(&self) -> PyResult<Option<String>> {
        self.ended()?;
        let error = self.sums.as_ref().and_then(|sums| sums.as_ref().err());
        Ok(error.map(ToString::to_string))
    }

    #[getter]
    fn wall_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.wall_ns)
    }

    #[getter]
    fn cpu_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.budget.cpu_ns)
    }

    #[getter]
    fn cpu_user_ns(&self) -> PyResult<Option<u64>> {
        self.number(Sums::cpu_user_ns)
    }

    #[getter]
    fn cpu_kernel_ns(&self) -> PyResult<Option<u64>> {
        self.number(Sums::cpu_kernel_ns)
    }

    #[getter]
    fn blocked_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.budget.blocked_ns)
    }

    #[getter]
    fn blocked_in_calls_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.in_calls.blocked_ns)
    }

    #[getter]
    fn runqueue_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.budget.runqueue_ns)
    }

    #[getter]
    fn preempted_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.budget.preempted_ns)
    }

    #[getter]
    fn irq_ns(&self) -> PyResult<Option<u64>> {
        let sums = self.ended()?.filter(|sums| sums.irq_is_measured());
        Ok(sums.map(|sums| sums.budget.irq_ns))
    }

    #[getter]
    fn calls(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.calls)
    }

    #[getter]
    fn sleeps(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.sleeps)
    }

    #[getter]
    fn faults_minor(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.faults_minor)
    }

    #[getter]
    fn faults_major(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.faults_major)
    }

    #[getter]
    fn unseen_ns(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.unseen_ns)
    }

    #[getter]
    fn unseen(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.unseen)
    }

    #[getter]
    fn untapped(&self) -> PyResult<Option<u64>> {
        self.number(|sums| sums.untapped)
    }

    /// All sums by name, for structured logs; for a scope that was not measured, name and why only.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("name", &self.name)?;
        let Some(sums) = self.ended()? else {
            dict.set_item("why", self.why()?)?;
            return Ok(dict);
        };
        dict.set_item("wall_ns", sums.wall_ns)?;
        dict.set_item("cpu_ns", sums.budget.cpu_ns)?;
        dict.set_item("cpu_user_ns", sums.cpu_user_ns())?;
        dict.set_item("cpu_kernel_ns", sums.cpu_kernel_ns())?;
        dict.set_item("blocked_ns", sums.budget.blocked_ns)?;
        dict.set_item("blocked_in_calls_ns", sums.in_calls.blocked_ns)?;
        dict.set_item("runqueue_ns", sums.budget.runqueue_ns)?;
        dict.set_item("preempted_ns", sums.budget.preempted_ns)?;
        dict.set_item("irq_ns", self.irq_ns()?)?;
        dict.set_item("calls", sums.calls)?;
        dict.set_item("sleeps", sums.sleeps)?;
        dict.set_item("faults_minor", sums.faults_minor)?;
        dict.set_item("faults_major", sums.faults_major)?;
        dict.set_item("unseen_ns", sums.unseen_ns)?;
        dict.set_item("unseen", sums.unseen)?;
        dict.set_item("untapped", sums.untapped)?;
        Ok(dict)
    }

    /// For a log line: `wall=4.10ms cpu=1.30ms blocked=2.75ms runqueue=50.0us preempted=0 calls=12`.
    /// For an open scope, the sums so far. Never raises: it is for logs.
    fn __str__(&self) -> String {
        match (&self.sums, &self.start) {
            (Some(Ok(sums)), _) => sums.to_string(),
            (None, Some(_)) => match self.read() {
                Ok(Ok(sums)) => format!("open {sums}"),
                _ => "open".to_string(),
            },
            (None, None) => "not begun".to_string(),
            (Some(Err(_)), _) => "unmeasured".to_string(),
        }
    }

    fn __repr__(&self) -> String {
        let why = match &self.sums {
            Some(Err(error)) => format!(": {error}"),
            _ => String::new(),
        };
        format!("<debox.Scope {:?} {}{why}>", self.name, self.__str__())
    }
}
