// SPDX-License-Identifier: MIT OR Apache-2.0
//! All benchmarks, in the order in which they are shown. A new one is a file here and a line in both lists.

mod call_after_work;
mod clock_call;
mod context_switch;
mod context_switch_lmbench;
mod cpu_code;
mod cpu_operations;
mod cpu_parallel;
mod device_read;
mod device_write;
mod epoll;
mod fault_page;
mod fault_protection;
mod fifo_latency;
mod file_create;
mod file_lock;
mod file_lock_handover;
mod file_names;
mod file_read_call;
mod file_read_cold;
mod file_reread;
mod file_sync;
mod file_transfer;
mod file_write;
mod fstat;
mod futex_call;
mod futex_wake;
mod io_uring;
mod library_random;
mod map_calls;
mod map_only;
mod map_reread;
mod map_unmap;
mod memory_clear;
mod memory_copy;
mod memory_copy_library;
mod memory_latency;
mod memory_line;
mod memory_page;
mod memory_parallel;
mod memory_read;
mod memory_stream;
mod memory_strided;
mod memory_tlb;
mod memory_write;
mod null_call;
mod open_close;
mod parallel_work;
mod pipe_bandwidth;
mod pipe_latency;
mod poll;
mod process_exec;
mod process_fork;
mod process_fork_call;
mod process_jobs;
mod process_shell;
mod process_spawn;
mod select;
mod semaphore_latency;
mod send_receive;
mod sendfile;
mod signal_deliver;
mod signal_install;
mod socket_create;
mod stat;
mod tcp_bandwidth;
mod tcp_connect;
mod tcp_latency;
mod tcp_send_receive;
mod thread_create;
mod timer_sleep;
mod udp_bandwidth;
mod udp_latency;
mod udp_send_receive;
mod unix_bandwidth;
mod unix_connect;
mod unix_latency;
mod unix_one_way;

use crate::benchmark::{Benchmark, Case};

pub static ALL: &[&Benchmark] = &[
    &memory_read::BENCHMARK,
    &memory_write::BENCHMARK,
    &memory_copy::BENCHMARK,
    &memory_copy_library::BENCHMARK,
    &memory_clear::BENCHMARK,
    &memory_latency::BENCHMARK,
    &memory_parallel::BENCHMARK,
    &memory_strided::BENCHMARK,
    &memory_stream::BENCHMARK,
    &memory_line::BENCHMARK,
    &memory_page::BENCHMARK,
    &memory_tlb::BENCHMARK,
    &cpu_operations::BENCHMARK,
    &cpu_parallel::BENCHMARK,
    &cpu_code::BENCHMARK,
    &library_random::BENCHMARK,
    &null_call::BENCHMARK,
    &call_after_work::BENCHMARK,
    &clock_call::BENCHMARK,
    &device_read::BENCHMARK,
    &device_write::BENCHMARK,
    &signal_install::BENCHMARK,
    &signal_deliver::BENCHMARK,
    &fault_page::BENCHMARK,
    &fault_protection::BENCHMARK,
    &map_unmap::BENCHMARK,
    &map_only::BENCHMARK,
    &map_calls::BENCHMARK,
    &open_close::BENCHMARK,
    &stat::BENCHMARK,
    &fstat::BENCHMARK,
    &file_create::BENCHMARK,
    &file_names::BENCHMARK,
    &file_lock::BENCHMARK,
    &file_lock_handover::BENCHMARK,
    &file_read_cold::BENCHMARK,
    &file_sync::BENCHMARK,
    &file_transfer::BENCHMARK,
    &file_reread::BENCHMARK,
    &file_write::BENCHMARK,
    &file_read_call::BENCHMARK,
    &map_reread::BENCHMARK,
    &pipe_bandwidth::BENCHMARK,
    &unix_bandwidth::BENCHMARK,
    &tcp_bandwidth::BENCHMARK,
    &udp_bandwidth::BENCHMARK,
    &sendfile::BENCHMARK,
    &pipe_latency::BENCHMARK,
    &fifo_latency::BENCHMARK,
    &unix_latency::BENCHMARK,
    &tcp_latency::BENCHMARK,
    &udp_latency::BENCHMARK,
    &tcp_connect::BENCHMARK,
    &unix_connect::BENCHMARK,
    &send_receive::BENCHMARK,
    &tcp_send_receive::BENCHMARK,
    &udp_send_receive::BENCHMARK,
    &unix_one_way::BENCHMARK,
    &socket_create::BENCHMARK,
    &context_switch::BENCHMARK,
    &context_switch_lmbench::BENCHMARK,
    &process_fork::BENCHMARK,
    &process_fork_call::BENCHMARK,
    &process_exec::BENCHMARK,
    &process_spawn::BENCHMARK,
    &process_shell::BENCHMARK,
    &thread_create::BENCHMARK,
    &parallel_work::BENCHMARK,
    &process_jobs::BENCHMARK,
    &poll::BENCHMARK,
    &select::BENCHMARK,
    &epoll::BENCHMARK,
    &futex_wake::BENCHMARK,
    &futex_call::BENCHMARK,
    &semaphore_latency::BENCHMARK,
    &timer_sleep::BENCHMARK,
    &io_uring::BENCHMARK,
];

/// Every benchmark with every one of its variants, also those that are measured only by name.
pub fn cases() -> Vec<Case> {
    ALL.iter().flat_map(|benchmark| benchmark.cases()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn declarations_are_whole_and_names_are_unique() {
        let names: Vec<String> = cases().iter().map(Case::name).collect();
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for benchmark in ALL {
            assert!(
                !benchmark.operation.is_empty()
                    && !benchmark.depends_on.is_empty()
                    && !benchmark.verified_by.is_empty(),
                "{benchmark:?}"
            );
        }
    }

    /// The promise of two minutes: a sample of 40 ms takes 60 ms with its search and its process.
    #[test]
    fn the_usual_benchmarks_take_two_minutes() {
        let usual = cases().iter().filter(|case| case.is_usual).count();
        assert!(usual * 11 * 60 < 130_000, "{usual}");
    }

    #[test]
    fn the_mapping_of_programs_names_benchmarks_that_exist() {
        let names: BTreeSet<String> = cases().iter().map(Case::name).collect();
        for benchmark in hbench_results::mapping::MAPPING.benchmarks() {
            assert!(names.contains(benchmark), "{benchmark}");
        }
    }

    #[test]
    fn the_hierarchy_names_benchmarks_that_exist() {
        let names: BTreeSet<String> = cases().iter().map(Case::name).collect();
        for node in hbench_results::hierarchy::nodes() {
            assert!(names.contains(&node.benchmark), "{}", node.benchmark);
            for part in node.parts {
                assert!(names.contains(&part.benchmark), "{}", part.benchmark);
            }
        }
    }
}
