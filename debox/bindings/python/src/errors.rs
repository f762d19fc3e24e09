//! The engine's errors as exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use engine::inband;

macro_rules! exceptions {
    ($($name:ident: $base:ty, $text:literal;)*) => {
        $(create_exception!(debox, $name, $base, $text);)*

        pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    Error: PyException, "Base class of DeBox's errors.";
    PrivilegeError: Error, "The process may not load probes, and no broker serves it.";
    UnsupportedError: Error, "The kernel lacks what the probes need.";
    AlreadyEnabledError: Error, "This process has enabled DeBox already.";
    NotEnabledError: Error, "This process has not enabled DeBox, or has closed its file descriptors since.";
    NotMonitoredError: Error, "More threads run than max_threads made room for.";
    NoSuchThreadError: Error, "No thread of that id is monitored.";
    ArgumentError: Error, "An argument is out of its range.";
    SystemRefusedError: Error, "The operating system refused something.";
    WrongThreadError: Error, "A scope must end on the thread it began on.";
    InterruptedError: Error, "Monitoring ended, or was started again, inside the scope.";
    StaleError: Error, "The record has been overwritten by a later call.";
}

pub fn raise(error: inband::Error) -> PyErr {
    let text = error.to_string();
    match error {
        inband::Error::Privilege(_) => PrivilegeError::new_err(text),
        inband::Error::Unsupported(_) => UnsupportedError::new_err(text),
        inband::Error::AlreadyEnabled => AlreadyEnabledError::new_err(text),
        inband::Error::NotEnabled | inband::Error::Closed => NotEnabledError::new_err(text),
        inband::Error::NotMonitored => NotMonitoredError::new_err(text),
        inband::Error::NoSuchThread(_) => NoSuchThreadError::new_err(text),
        inband::Error::Argument(_) | inband::Error::Predicate(_) => ArgumentError::new_err(text),
        inband::Error::System(_) => SystemRefusedError::new_err(text),
        inband::Error::OtherThread => WrongThreadError::new_err(text),
        inband::Error::Interrupted => InterruptedError::new_err(text),
    }
}
