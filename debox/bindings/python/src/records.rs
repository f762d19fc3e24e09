//! Records: in place, and copied.

use std::sync::atomic::{fence, Ordering};

use pyo3::prelude::*;

use engine::inband;
use engine::record::{self, ResourceKind, Waker, CPU_MEASURED, IRQ_MEASURED, SLEEPS_MAX};

use crate::errors::StaleError;

type Raw = *const record::Record;

/// Reads a field that the kernel may have changed since the last look.
macro_rules! read {
    ($pointer:expr, $($field:tt)+) => {
        // SAFETY: records stay mapped for good, and any bytes are valid integers.
        unsafe { std::ptr::read_volatile(&raw const (*$pointer).$($field)+) }
    };
}

/// The record of this thread's last call, where the kernel wrote it.
#[pyclass(frozen, module = "debox")]
pub struct Last {
    record: Raw,
    /// These two tell whether the record is still that call's.
    sequence: u32,
    start_ns: u64,
}

// SAFETY: the memory stays mapped for good, is only read with volatile loads, and a change is noticed.
unsafe impl Send for Last {}
// SAFETY: as above.
unsafe impl Sync for Last {}

impl Last {
    pub fn new(last: inband::Last) -> Last {
        let record = last.as_ptr();
        Last {
            record,
            sequence: read!(record, sequence),
            start_ns: read!(record, start_ns),
        }
    }

    /// What `look` reads, if the record was complete and this call's all the while.
    fn get<T>(&self, look: impl FnOnce(Raw) -> T) -> PyResult<T> {
        let value = look(self.record);
        fence(Ordering::Acquire);
        let is_same = read!(self.record, sequence) == self.sequence
            && read!(self.record, start_ns) == self.start_ns;
        if is_same {
            Ok(value)
        } else {
            Err(StaleError::new_err(
                "this record has been overwritten by a later call: read it before the eighth \
                 call after it, or keep a copy()",
            ))
        }
    }

    fn snapshot(&self) -> PyResult<record::Record> {
        // SAFETY: as in `read!`.
        self.get(|record| unsafe { std::ptr::read_volatile(record) })
    }
}

/// A copy of a record.
#[pyclass(frozen, module = "debox")]
pub struct Record {
    record: Box<record::Record>,
}

impl Record {
    pub fn new(record: record::Record) -> Record {
        Record {
            record: Box::new(record),
        }
    }

    fn get<T>(&self, look: impl FnOnce(Raw) -> T) -> PyResult<T> {
        Ok(look(&raw const *self.record))
    }

    fn snapshot(&self) -> PyResult<record::Record> {
        Ok(*self.record)
    }
}

/// Either of them.
#[derive(FromPyObject)]
pub enum Either<'py> {
    Last(PyRef<'py, Last>),
    Record(PyRef<'py, Record>),
}

impl Either<'_> {
    pub fn copy(&self) -> PyResult<record::Record> {
        match self {
            Either::Last(last) => last.snapshot(),
            Either::Record(record) => record.snapshot(),
        }
    }
}

/// The attributes of both.
macro_rules! attributes {
    ($type:ty, $name:literal) => {
        #[pymethods]
        impl $type {
            #[getter]
            fn number(&self) -> PyResult<u64> {
                self.get(|record| read!(record, number))
            }
            #[getter]
            fn call(&self) -> PyResult<i32> {
                self.get(|record| read!(record, call))
            }
            #[getter]
            fn abi(&self) -> PyResult<u16> {
                self.get(|record| read!(record, abi))
            }
            #[getter]
            fn name(&self) -> PyResult<String> {
                let named = self.get(|record| record::Record {
                    call: read!(record, call),
                    abi: read!(record, abi),
                    ..record::Record::default()
                });
                Ok(named?.call_name())
            }
            #[getter]
            fn ret(&self) -> PyResult<i64> {
                self.get(|record| read!(record, ret))
            }
            #[getter]
            fn errno(&self) -> PyResult<Option<i64>> {
                let ret = self.ret()?;
                Ok((-4095..0).contains(&ret).then_some(-ret))
            }
            #[getter]
            fn args(&self) -> PyResult<(u64, u64, u64)> {
                self.get(|record| read!(record, args).into())
            }
            #[getter]
            fn flags(&self) -> PyResult<u16> {
                self.get(|record| read!(record, flags))
            }
            #[getter]
            fn start_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, start_ns))
            }
            #[getter]
            fn wall_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, wall_ns))
            }
            #[getter]
            fn cpu_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, budget.cpu_ns))
            }
            #[getter]
            fn blocked_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, budget.blocked_ns))
            }
            #[getter]
            fn runqueue_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, budget.runqueue_ns))
            }
            #[getter]
            fn preempted_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, budget.preempted_ns))
            }
            #[getter]
            fn irq_ns(&self) -> PyResult<Option<u64>> {
                self.get(|record| {
                    let is_measured = read!(record, flags) & IRQ_MEASURED != 0;
                    is_measured.then(|| read!(record, budget.irq_ns))
                })
            }
            #[getter]
            fn throttled_ns(&self) -> PyResult<Option<u64>> {
                self.get(|record| {
                    let is_measured = read!(record, flags) & CPU_MEASURED != 0;
                    is_measured.then(|| read!(record, throttled_ns))
                })
            }
            #[getter]
            fn cpu_owner(&self) -> PyResult<Option<CpuOwner>> {
                self.get(|record| {
                    CpuOwner::of(&record::Record {
                        cpu_owner_ns: read!(record, cpu_owner_ns),
                        cpu_owner_kind: read!(record, cpu_owner_kind),
                        cpu_owner_pid: read!(record, cpu_owner_pid),
                        cpu_owner_comm_raw: read!(record, cpu_owner_comm_raw),
                        ..record::Record::default()
                    })
                })
            }
            #[getter]
            fn outside_ns(&self) -> PyResult<u64> {
                self.get(|record| read!(record, budget.outside_ns))
            }
            #[getter]
            fn faults_minor(&self) -> PyResult<u32> {
                self.get(|record| read!(record, faults_minor))
            }
            #[getter]
            fn faults_major(&self) -> PyResult<u32> {
                self.get(|record| read!(record, faults_major))
            }
            #[getter]
            fn sleeps(&self) -> PyResult<Vec<Sleep>> {
                self.get(|record| {
                    let used = usize::from(read!(record, sleeps_used)).min(SLEEPS_MAX);
                    let entry = |index: usize| Sleep::from(read!(record, sleep_entries[index]));
                    (0..used).map(entry).collect()
                })
            }
            #[getter]
            fn sleeps_lost(&self) -> PyResult<u32> {
                self.get(|record| read!(record, sleeps_lost))
            }
            /// A copy that does not change any more.
            fn copy(&self) -> PyResult<Record> {
                self.snapshot().map(Record::new)
            }
            fn __repr__(&self) -> PyResult<String> {
                let record = self.snapshot()?;
                Ok(format!(
                    concat!(
                        "<debox.",
                        $name,
                        " {} ret={} wall_ns={} cpu_ns={} blocked_ns={} runqueue_ns={}>"
                    ),
                    record.call_name(),
                    record.ret,
                    record.wall_ns,
                    record.budget.cpu_ns,
                    record.budget.blocked_ns,
                    record.budget.runqueue_ns,
                ))
            }
        }
    };
}

attributes!(Last, "Last");
attributes!(Record, "Record");

/// Who had the CPU for the largest part of the time in which a call waited for one.
#[pyclass(frozen, get_all, module = "debox")]
pub struct CpuOwner {
    kind: &'static str,
    name: Option<String>,
    pid: Option<u32>,
    ns: u64,
}

impl CpuOwner {
    fn of(record: &record::Record) -> Option<CpuOwner> {
        let owner = record.cpu_owner();
        let is_process = owner.is_process();
        Some(CpuOwner {
            kind: owner.as_str()?,
            name: is_process.then(|| record.cpu_owner_comm()),
            pid: is_process.then_some(record.cpu_owner_pid),
            ns: record.cpu_owner_ns,
        })
    }
}

#[pymethods]
impl CpuOwner {
    fn __repr__(&self) -> String {
        let name = self.name.as_deref().unwrap_or(self.kind);
        format!("<debox.CpuOwner {name} ns={}>", self.ns)
    }
}

/// One place where a call slept.
#[pyclass(frozen, get_all, module = "debox")]
pub struct Sleep {
    count: u32,
    blocked_ns: u64,
    longest_ns: u64,
    site: u64,
    stack: u64,
    resource: u64,
    resource_kind: Option<&'static str>,
    waiters_entry: u32,
    waiters_exit: u32,
    waker: Option<String>,
    waker_tid: Option<u32>,
    owner: Option<String>,
    owner_tid: Option<u32>,
}

impl From<record::Sleep> for Sleep {
    fn from(sleep: record::Sleep) -> Sleep {
        let waker = match sleep.waker() {
            Waker::Task => Some(sleep.waker_comm()),
            Waker::HardIrq => Some("hard interrupt".to_string()),
            Waker::SoftIrq => Some("soft interrupt".to_string()),
            Waker::Unknown => None,
        };
        let resource_kind = match sleep.resource_kind() {
            ResourceKind::None => None,
            ResourceKind::Fd => Some("fd"),
            ResourceKind::Futex => Some("futex"),
            ResourceKind::Timer => Some("timer"),
            ResourceKind::Lock => Some("lock"),
            ResourceKind::Child => Some("child"),
            ResourceKind::Disk => Some("disk"),
        };
        let known = |tid: u32| (tid != 0).then_some(tid);
        Sleep {
            count: sleep.count,
            blocked_ns: sleep.blocked_ns,
            longest_ns: sleep.longest_ns,
            site: sleep.site,
            stack: sleep.stack,
            resource: sleep.resource,
            resource_kind,
            waiters_entry: sleep.waiters_entry,
            waiters_exit: sleep.waiters_exit,
            waker,
            waker_tid: known(sleep.waker_tid),
            owner: known(sleep.owner_tid).map(|_| sleep.owner_comm()),
            owner_tid: known(sleep.owner_tid),
        }
    }
}

#[pymethods]
impl Sleep {
    fn __repr__(&self) -> String {
        format!(
            "<debox.Sleep count={} blocked_ns={} waker={}>",
            self.count,
            self.blocked_ns,
            self.waker.as_deref().unwrap_or("unknown")
        )
    }
}

/// The meaning of a sleep.
#[pyclass(frozen, get_all, module = "debox")]
pub struct Explanation {
    label: String,
    wait_class: String,
    function: String,
    offset: u64,
    file: Option<String>,
    line: Option<u32>,
}

impl From<&inband::Explanation> for Explanation {
    fn from(explained: &inband::Explanation) -> Explanation {
        let has_file = !explained.file.is_empty();
        Explanation {
            label: explained.label.clone(),
            wait_class: explained.class.as_str().to_string(),
            function: explained.function.clone(),
            offset: explained.offset,
            file: has_file.then(|| explained.file.clone()),
            line: has_file.then_some(explained.line),
        }
    }
}

#[pymethods]
impl Explanation {
    fn __repr__(&self) -> String {
        format!(
            "<debox.Explanation {:?} ({}) in {}>",
            self.label, self.wait_class, self.function
        )
    }
}
