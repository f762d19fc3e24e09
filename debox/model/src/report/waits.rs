//! What calls waited for: asleep, for a lock while spinning, and for a CPU; and who kept them waiting.

use serde::{Deserialize, Serialize};

use super::{Certainty, ChainEnd, CpuWaitKind, CpuWaitPart, Resource, WaitersScope, WakerKind};
use crate::frame::Frame;
use crate::rest::FUTEX;
use crate::runtimes::Runtimes;

/// One kernel site where one system call slept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sleep {
    pub syscall: String,
    pub label: String,
    /// `idle`, `disk`, `lock`, `memory`, `cpu`, `network`, `process` or `other`.
    pub class: String,
    /// `function+0xOFF`, with file and line where the kernel has debug information.
    pub site: Frame,
    pub count: u64,
    pub blocked_ns: u64,
    pub max_ns: u64,
    /// The kernel stack, innermost first.
    pub frames: Vec<Frame>,
    pub wakers: Vec<Waker>,
    /// Most waiters when a sleep began, the sleeper included; null when not counted.
    pub waiters_entry_max: Option<u64>,
    /// Most waiters left when a sleep ended, the sleeper not included.
    pub waiters_exit_max: Option<u64>,
    /// `all` (contended kernel locks: over all tasks) or `monitored`; null when not counted.
    pub waiters_scope: Option<WaitersScope>,
    /// What the sleeps waited on; of several resources, the one with the most time. Null if neither the call's
    /// arguments nor the kernel identify it.
    #[serde(default)]
    pub resource: Option<Resource>,
    /// All resources, the one with the most time first.
    #[serde(default)]
    pub resources: Vec<ResourceShare>,
    /// Who held the resource when the sleeps began; empty for resources that cannot be held (pipes, disks,
    /// timers).
    #[serde(default)]
    pub owners: Vec<Owner>,
    pub call_sites: Vec<SleepCallSite>,
}

impl Sleep {
    /// Whether most of the time was spent in waits for what is held, or in functions that get locks.
    pub fn are_for_lock(sleeps: &[&Sleep]) -> bool {
        let sum = |of: &dyn Fn(&Sleep) -> u64| {
            let each = sleeps.iter().map(|sleep| of(sleep));
            each.fold(0, u64::saturating_add)
        };
        let owners = |sleep: &Sleep| {
            let held = sleep.owners.iter().map(|owner| owner.blocked_ns);
            held.fold(0, u64::saturating_add)
        };
        let in_locks = |sleep: &Sleep| {
            let gets_lock =
                |site: &&SleepCallSite| Runtimes::builtin().purpose(&site.frames).is_lock();
            let sites = sleep.call_sites.iter().filter(gets_lock);
            sites.fold(0u64, |sum, site| sum.saturating_add(site.blocked_ns))
        };
        sum(&owners).max(sum(&in_locks)) > sum(&|sleep| sleep.blocked_ns) / 2
    }

    /// Call sites where futex waits are for a lock, or for something that a request needs, as the functions there say.
    pub fn not_for_work(&self) -> impl Iterator<Item = &SleepCallSite> {
        self.call_sites.iter().filter(|site| {
            let purpose = Runtimes::builtin().purpose(&site.frames);
            self.label == FUTEX && !purpose.may_be_work()
        })
    }

    /// Time asleep at call sites where a runtime's threads only wait for work.
    pub fn parked_ns(&self) -> u64 {
        let is_parked = |site: &&SleepCallSite| Runtimes::builtin().are_parking(&site.frames);
        let parked = self.call_sites.iter().filter(is_parked);
        parked.fold(0, |sum, site| sum.saturating_add(site.blocked_ns))
    }
}

/// Where in the program a sleeping call was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SleepCallSite {
    /// User stack, innermost first.
    pub frames: Vec<Frame>,
    /// The innermost frame of the program's own code, which is neither the C library's nor a language
    /// runtime's.
    pub caller: Option<Frame>,
    pub count: u64,
    pub blocked_ns: u64,
}

/// One of the resources that sleeps waited on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceShare {
    #[serde(flatten)]
    pub resource: Resource,
    pub count: u64,
    pub blocked_ns: u64,
}

/// Who held what sleeps waited on at the time they began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    pub certainty: Certainty,
    pub comm: Option<String>,
    /// For file locks, the process that took the lock.
    pub tid: Option<u32>,
    /// Sleeps that waited for this owner.
    pub count: u64,
    pub blocked_ns: u64,
    /// `on CPU`, `waiting for a CPU`, or the label of its own sleep; null when not known.
    pub doing: Option<String>,
}

/// Who ended sleeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waker {
    pub kind: WakerKind,
    /// Null unless `kind` is `task`: an interrupted bystander is not a waker.
    pub comm: Option<String>,
    pub tid: Option<u32>,
    pub count: u64,
}

/// A kernel lock that calls spun on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spin {
    pub syscall: String,
    /// `mutex`, `rwsem`, or `lock` for a spinlock or rwlock; with its name if that is known.
    pub lock: Resource,
    /// The kernel function that took it.
    pub site: Frame,
    pub count: u64,
    /// Included in the calls' `spin_ns`.
    pub spin_ns: u64,
    pub max_ns: u64,
}

/// Who had the CPU while threads waited for one, or what kept them from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuWait {
    /// The call in which they waited; `(user)`: between calls.
    pub syscall: String,
    /// Whether they waited after they were woken or after they were preempted; null in a recording's report.
    pub part: Option<CpuWaitPart>,
    pub kind: CpuWaitKind,
    /// Name of the process that had the CPU; null unless `kind` is `task` or `kernel`.
    pub comm: Option<String>,
    pub pid: Option<u32>,
    /// Whether the process is monitored.
    pub is_own: bool,
    /// Whether it ran under a real-time or deadline policy.
    pub is_real_time: bool,
    /// Quota: last component of the control group's path.
    pub group: Option<String>,
    /// Quota: CPU time in each period.
    pub quota_ns: Option<u64>,
    pub period_ns: Option<u64>,
    /// Turns on the CPU during such waits; for `quota`, the number of waits.
    pub turns: u64,
    pub ns: u64,
    /// The longest turn.
    pub max_ns: u64,
    /// CPUs on which the waiting threads may run, the fewest seen; null if `untold`.
    pub cpus_allowed: Option<u32>,
}

/// A waited for B, which waited for C: each link waited for the next one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Waits of the first link that had this chain.
    pub count: u64,
    /// Why there is no further link.
    pub end: ChainEnd,
    pub links: Vec<ChainLink>,
}

/// A task in a chain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainLink {
    pub comm: String,
    /// Null when there were several of that name.
    pub tid: Option<u32>,
    /// How long the first link waited; how long a later one was itself asleep during the wait of
    /// the link before it. Null when it was not monitored.
    pub waited_ns: Option<u64>,
    /// The part of `waited_ns` that `label` explains: a link may sleep at several places.
    pub label_ns: Option<u64>,
    /// The place where it slept longest; null if it did not sleep.
    pub label: Option<String>,
    pub class: Option<String>,
    pub syscall: Option<String>,
    /// What it did when the wait of the link before it began; null for the first link.
    pub doing: Option<String>,
    /// How certain it is that this link waited for the next one; null for the last link.
    pub certainty: Option<Certainty>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slept_in(sites: &[(&str, u64)]) -> Sleep {
        let call_sites = sites.iter().map(|(function, ns)| SleepCallSite {
            frames: vec![
                "__futex_abstimed_wait_common+0x9 (futex-internal.c:57)".into(),
                (*function).into(),
            ],
            blocked_ns: *ns,
            ..SleepCallSite::default()
        });
        Sleep {
            blocked_ns: sites.iter().map(|(_, ns)| ns).sum(),
            call_sites: call_sites.collect(),
            ..Sleep::default()
        }
    }

    #[test]
    fn sleeps_are_for_locks_if_most_of_their_time_was_spent_in_functions_that_get_them() {
        const MONITOR: &str = "ObjectMonitor::enter(JavaThread*)+0x268 (libjvm.so)";
        const CONDITION: &str = "___pthread_cond_wait+0x9 (pthread_cond_wait.c:618)";
        assert!(Sleep::are_for_lock(&[&slept_in(&[
            (MONITOR, 60),
            (CONDITION, 40)
        ])]));
        assert!(!Sleep::are_for_lock(&[&slept_in(&[
            (MONITOR, 40),
            (CONDITION, 60)
        ])]));
        let [one, other] = [(MONITOR, 90), (CONDITION, 10)].map(|site| slept_in(&[site]));
        assert!(Sleep::are_for_lock(&[&one, &other]));
        assert!(!Sleep::are_for_lock(&[]));
    }
}
