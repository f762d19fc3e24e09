// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of what a report names: wakers, owners, waits for a CPU, ends of chains. Each has one text, in JSON and on
//! a terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines an enum whose variants have these texts. One of them is marked as the default.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }

            /// The kind with this text.
            pub fn of(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|kind| kind.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.pad(self.as_str())
            }
        }
    };
}

kinds! {
    /// What ended a sleep.
    WakerKind {
        Task = "task",
        HardIrq = "hardirq",
        SoftIrq = "softirq",
        #[default]
        Unknown = "unknown",
    }
}

kinds! {
    /// How certain it is that an owner held the resource.
    Certainty {
        Exact = "exact",
        /// Of a semaphore: the task that took it last and has not released it itself.
        LastHolder = "last holder",
        /// Of a lock held by readers.
        LastReader = "last reader",
        /// No owner is known.
        #[default]
        None = "none",
    }
}

kinds! {
    /// The tasks whose waiters were counted.
    WaitersScope {
        /// Of contended kernel locks.
        All = "all",
        #[default]
        Monitored = "monitored",
    }
}

kinds! {
    /// The part of the budget in which a thread waited for a CPU.
    CpuWaitPart {
        Preempted = "preempted",
        #[default]
        Runqueue = "runqueue",
    }
}

kinds! {
    /// Who had the CPU, or what kept a thread from it.
    CpuWaitKind {
        Task = "task",
        /// A kernel thread.
        Kernel = "kernel",
        /// The quota of the threads' control group was used up.
        Quota = "quota",
        /// The CPU had nothing to do.
        Idle = "idle",
        /// Another user's task.
        Hidden = "hidden",
        /// Too many processes for a row each.
        Many = "many",
        /// The hypervisor.
        Stolen = "stolen",
        #[default]
        Unknown = "unknown",
        /// The wait had not ended, or no switch showed it.
        Untold = "untold",
    }
}

kinds! {
    /// Why a chain has no further link.
    ChainEnd {
        #[default]
        Complete = "complete",
        /// The next task is in the chain already.
        Cycle = "cycle",
        Length = "length",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_json() {
        fn check<K>(all: &[K], as_str: fn(K) -> &'static str, of: fn(&str) -> Option<K>)
        where
            K: Copy + PartialEq + fmt::Debug + Serialize + for<'a> Deserialize<'a>,
        {
            for &kind in all {
                let json = format!("\"{}\"", as_str(kind));
                assert_eq!(serde_json::to_string(&kind).expect("JSON"), json);
                assert_eq!(serde_json::from_str::<K>(&json).expect("a kind"), kind);
                assert_eq!(of(as_str(kind)), Some(kind));
            }
            assert_eq!(of("no such kind"), None);
        }
        check(WakerKind::ALL, WakerKind::as_str, WakerKind::of);
        check(Certainty::ALL, Certainty::as_str, Certainty::of);
        check(WaitersScope::ALL, WaitersScope::as_str, WaitersScope::of);
        check(CpuWaitPart::ALL, CpuWaitPart::as_str, CpuWaitPart::of);
        check(CpuWaitKind::ALL, CpuWaitKind::as_str, CpuWaitKind::of);
        check(ChainEnd::ALL, ChainEnd::as_str, ChainEnd::of);
    }
}
