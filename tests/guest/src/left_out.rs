// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests that guests do not run, with reasons, which are printed below the matrix.

/// Which tests a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// One test of each kind.
    Quick,
    /// Tests whose result depends on the kernel: the truth of the records, and the call tree.
    Truth,
    /// All tests.
    All,
}

/// Tests that are left out.
#[derive(Debug)]
pub struct LeftOut {
    /// The guest; empty for all guests.
    pub kernel: &'static str,
    pub suite: &'static str,
    /// The test; empty for the whole program.
    pub test: &'static str,
    pub reason: &'static str,
}

const fn everywhere(suite: &'static str, test: &'static str, reason: &'static str) -> LeftOut {
    LeftOut {
        kernel: "",
        suite,
        test,
        reason,
    }
}

/// The packages whose test programs depend on the kernel, because they load probes or read what probes write.
pub const WITH_PROBES: [&str; 5] = [
    "debox",
    "debox-capi",
    "debox-preload",
    "debox-real",
    "debox-tests",
];

pub const LEFT_OUT: &[LeftOut] = &[
    everywhere(
        "bad_input",
        "a_child_left_running_is_not_waited_for",
        "debox's own start and end, against the clock",
    ),
    everywhere("harness", "", "tests the tests, on no kernel"),
    everywhere("security_page", "", "a document's, on no kernel"),
    everywhere("output_fails", "of_hbench", "microbenchmarks, by the clock"),
    everywhere(
        "output_fails",
        "of_latlab",
        "a load generator's, by the clock",
    ),
];

/// Tests that only `--all` runs: they test what is built on top of the records. In a guest they take
/// longer than all tests of the records, and their results hardly depend on the kernel.
pub const ON_TOP: [(&str, &str); 15] = [
    ("bad_input", "the command line"),
    ("broker_records", "the command line over the broker"),
    ("broker_run", "the command line over the broker"),
    ("doctor", "the command line; the matrix shows what it says"),
    ("full_disk", "the files of the command line"),
    ("interface", "the C interface over what `inband` tests"),
    ("named_files", "the files of the command line"),
    ("output_fails", "the output of the command line"),
    ("programs", "real programs"),
    ("scale", "thousands of threads"),
    ("scopes", "sums of records"),
    ("top", "a view on top of the sums"),
    ("unit", "the broker's unit, which `--unit` boots"),
    ("user_tap_safety", "what a tapped program may do"),
    ("welcome", "whom the user tap's library serves"),
];

/// Tests that `--quick` runs, on every change, and therefore in a minute of CPU time: one test for
/// each kind of probe, each source of truth, and each kind of failure. The whole matrix runs the others.
pub const QUICK: [(&str, &str); 12] = [
    ("attach", "a_hanging_process_says_what_it_waits_for"),
    ("bad_input", "the_kernel_has_no_types"),
    ("counts", "a_dynamic_program_is_counted_exactly"),
    ("cpu", "two_threads_share_one_cpu"),
    ("inband", "a_known_wait_is_measured_and_explained"),
    ("interrupted", "a_stop_inside_read_splits_it"),
    ("storage", "a_mapped_file_faults_in_user_code"),
    ("storage", "extending_writes_wait_for_the_inode_lock"),
    ("tasks", "a_thread_that_is_not_the_leader_executes"),
    ("trace_exact", "nested_times_add_up_to_the_calls"),
    ("user_tap", "faults_inside_read_are_reads"),
    ("waits", "a_mutex_is_released"),
];

/// The reason why this test is not run on this kernel, if there is one.
pub fn reason(kernel: &str, suite: &str, test: &str) -> Option<&'static str> {
    let fits = |left_out: &&LeftOut| {
        (left_out.kernel.is_empty() || left_out.kernel == kernel)
            && left_out.suite == suite
            && (left_out.test.is_empty() || left_out.test == test)
    };
    LEFT_OUT.iter().find(fits).map(|left_out| left_out.reason)
}

impl Set {
    /// Whether a test belongs to this set.
    pub fn has(self, suite: &str, test: &str) -> bool {
        match self {
            Self::Quick => QUICK.contains(&(suite, test)),
            Self::Truth => ON_TOP.iter().all(|(on_top, _)| suite != *on_top),
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_program_is_left_out_everywhere() {
        assert!(reason("6.1", "harness", "any_test").is_some());
        assert!(reason("6.12", "waits", "a_thread_is_joined").is_none());
    }

    #[test]
    fn what_stands_on_top_is_for_all() {
        assert!(Set::All.has("doctor", "wrong_usage"));
        assert!(!Set::Truth.has("doctor", "wrong_usage"));
        assert!(Set::Truth.has("waits", "a_thread_is_joined"));
        assert!(Set::Quick.has("bad_input", "the_kernel_has_no_types"));
    }

    #[test]
    fn each_has_a_reason() {
        for left_out in LEFT_OUT {
            assert!(left_out.reason.len() > 10, "{left_out:?}");
        }
    }
}
