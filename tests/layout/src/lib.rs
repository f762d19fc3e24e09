//! Nothing but the test in `tests/`.
