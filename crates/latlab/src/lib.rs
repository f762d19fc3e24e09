//! The load side of the latency laboratory.

pub mod content;
pub mod fileset;
pub mod sys;
pub mod units;
