//! Contains only the test in `tests/`.
