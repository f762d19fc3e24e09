// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of a headline.

use serde::{Deserialize, Serialize};

use super::{Resource, SampledPlace};
use crate::frame::Frame;

/// Where the time went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// The time that is accounted for, summed over all threads.
    pub of_ns: u64,
    /// Idle waits that are not in `of_ns`: those of threads that wait for work while others work.
    pub idle_ns: u64,
    /// Whether the longest share is a server's wait for requests.
    pub is_served: bool,
    /// The longest first. They add up to `of_ns`.
    pub shares: Vec<Share>,
    /// The call with most of the time, if no single share has most of it.
    #[serde(default)]
    pub in_call: Option<InCall>,
    /// For a run with many short-lived processes.
    #[serde(default)]
    pub short_lived: Option<ShortLived>,
}

/// The time spent in one call for several causes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InCall {
    pub call: String,
    pub ns: u64,
    /// The longest first. They add up to `ns`.
    pub shares: Vec<CallPart>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPart {
    /// As in [`Share`].
    pub cause: String,
    pub ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortLived {
    pub processes: u64,
    /// Their average lifetime.
    pub mean_ns: u64,
}

/// A part of the time with one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// `user CPU`, `kernel CPU`, `waiting for a CPU`, `CPU quota`, `interrupts`, `outside` (user tap), `asleep` (if it
    /// is not known on what), or the label of sleeps.
    pub cause: String,
    pub ns: u64,
    /// The class of sleeps; null for other causes.
    pub class: Option<String>,
    /// The call with the sleeps, or with most of them; for kernel CPU time, the call with the most of it.
    pub call: Option<String>,
    /// The number of sleeps; null for other causes.
    pub count: Option<u64>,
    pub max_ns: Option<u64>,
    /// The resource that most of the time was waited on.
    pub resource: Option<Resource>,
    /// Who held the resource most of the time; for waits for a CPU, who had the CPU.
    pub owner: Option<String>,
    /// The place in the program that most of it was called from.
    pub caller: Option<Frame>,
    /// For CPU time: the function with the most samples; null if no function has a clear part of them, or there are no
    /// samples.
    #[serde(default)]
    pub place: Option<SampledPlace>,
    /// Whether most of it was for a resource that can be held.
    #[serde(skip)]
    pub is_for_lock: bool,
    /// Whether most of it was at call sites where only threads without work wait.
    #[serde(skip)]
    pub is_parked: bool,
    /// The sleeps that had not ended.
    #[serde(skip)]
    pub open: u64,
    /// Idle waits that brought the thread no work from outside the process: another thread ended them, through an
    /// eventfd, or nothing ended them while they were observed.
    #[serde(skip)]
    pub is_within: bool,
}
