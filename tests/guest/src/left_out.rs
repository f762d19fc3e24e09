// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests do not run, and why. Shown under the matrix.

/// Tests that are left out.
#[derive(Debug)]
pub struct LeftOut {
    /// The guest, empty for all.
    pub kernel: &'static str,
    pub suite: &'static str,
    /// The test, empty for the whole program.
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

pub const LEFT_OUT: [LeftOut; 3] = [
    everywhere(
        "bad_input",
        "a_child_left_running_is_not_waited_for",
        "debox's own start and end, against the clock",
    ),
    everywhere("harness", "", "tests the tests, on no kernel"),
    everywhere("report_schema", "", "needs no kernel"),
];

/// What `--quick` runs: a test of each kind of probe, of each source of truth and
/// of what can go wrong. The other tests of these programs are for the whole matrix.
pub const QUICK: [(&str, &str); 27] = [
    ("attach", "a_hanging_process_says_what_it_waits_for"),
    ("bad_input", "an_ordinary_end_leaves_nothing"),
    ("bad_input", "the_kernel_has_no_types"),
    ("counts", "a_dynamic_program_is_counted_exactly"),
    ("counts", "every_detail_counts_alike"),
    ("cpu", "faults_inside_read_are_reads"),
    ("cpu", "interrupts_are_measured_on_request"),
    ("cpu", "two_threads_share_one_cpu"),
    ("inband", "a_known_wait_is_measured_and_explained"),
    ("interrupted", "a_handler_interrupts_nanosleep"),
    ("interrupted", "a_stop_inside_read_splits_it"),
    ("storage", "a_cold_file_is_read"),
    ("storage", "a_mapped_file_faults_in_user_code"),
    ("storage", "extending_writes_wait_for_the_inode_lock"),
    ("storage", "fsync_waits_for_the_disk"),
    ("tasks", "a_thread_that_is_not_the_leader_executes"),
    ("tasks", "a_thread_without_any_library_is_followed"),
    ("tasks", "children_are_followed_and_counted"),
    ("user_tap", "known_waits_are_the_same"),
    ("user_tap_safety", "ends_in_the_middle_of_a_call"),
    ("waits", "a_file_lock_is_held_by_a_child"),
    ("waits", "a_mutex_is_released"),
    ("waits", "a_tcp_socket_receives"),
    ("waits", "a_vfork_parent_waits_for_its_child"),
    ("waits", "an_empty_pipe_is_filled_by_a_child"),
    ("waits", "an_event_loop_is_woken_by_its_event"),
    ("waits", "nanosleep_is_ended_by_its_timer"),
];

/// Why this test is not run there, if it is not.
pub fn reason(kernel: &str, suite: &str, test: &str) -> Option<&'static str> {
    let fits = |left_out: &&LeftOut| {
        (left_out.kernel.is_empty() || left_out.kernel == kernel)
            && left_out.suite == suite
            && (left_out.test.is_empty() || left_out.test == test)
    };
    LEFT_OUT.iter().find(fits).map(|left_out| left_out.reason)
}

/// Whether `--quick` runs it.
pub fn is_quick(suite: &str, test: &str) -> bool {
    QUICK.contains(&(suite, test))
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
    fn each_has_a_reason() {
        for left_out in &LEFT_OUT {
            assert!(left_out.reason.len() > 10, "{left_out:?}");
        }
    }
}
