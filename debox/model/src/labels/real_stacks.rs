// Stacks of sleeps that were made to happen on Linux 6.18 (x86-64, ext4 with and without a
// journal), as the kernel's unwinder gave them. Part of the tests; see `Known` for the columns.

#[rustfmt::skip]
const REAL: &[Known] = &[
    known("read",
          "anon_pipe_read vfs_read ksys_read",
          "anon_pipe_read", "pipe empty", Class::Process),
    known("write",
          "anon_pipe_write vfs_write ksys_write",
          "anon_pipe_write", "pipe full", Class::Process),
    known("splice",
          "pipe_wait_readable ipipe_prep.part.0 do_splice __do_splice __x64_sys_splice",
          "pipe_wait_readable", "pipe empty", Class::Process),
    known("openat",
          "wait_for_partner fifo_open do_dentry_open vfs_open path_openat do_filp_open \
           do_sys_openat2 __x64_sys_openat",
          "wait_for_partner", "FIFO open", Class::Process),
    known("read",
          "schedule_timeout unix_stream_read_generic unix_stream_recvmsg sock_recvmsg \
           sock_read_iter vfs_read ksys_read",
          "unix_stream_read_generic", "Unix socket empty", Class::Process),
    known("write",
          "schedule_timeout sock_alloc_send_pskb unix_stream_sendmsg sock_write_iter vfs_write \
           ksys_write",
          "sock_alloc_send_pskb", "Unix socket full", Class::Process),
    known("read",
          "schedule_timeout __skb_wait_for_more_packets __unix_dgram_recvmsg sock_recvmsg \
           sock_read_iter vfs_read ksys_read",
          "__skb_wait_for_more_packets", "Unix socket empty", Class::Process),
    known("write",
          "schedule_timeout sock_alloc_send_pskb unix_dgram_sendmsg sock_write_iter vfs_write \
           ksys_write",
          "sock_alloc_send_pskb", "Unix socket full", Class::Process),
    known("connect",
          "schedule_timeout unix_wait_for_peer unix_stream_connect __sys_connect \
           __x64_sys_connect",
          "unix_wait_for_peer", "Unix socket connect", Class::Process),
    known("accept",
          "schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram \
           unix_accept do_accept __sys_accept4 __x64_sys_accept",
          "__skb_wait_for_more_packets", "accept", Class::Idle),
    known("accept",
          "schedule_timeout inet_csk_accept inet_accept do_accept __sys_accept4 \
           __x64_sys_accept",
          "inet_csk_accept", "accept", Class::Idle),
    known("read",
          "schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg sock_recvmsg \
           sock_read_iter vfs_read ksys_read",
          "sk_wait_data", "TCP receive", Class::Network),
    known("write",
          "schedule_timeout wait_woken sk_stream_wait_memory tcp_sendmsg_locked tcp_sendmsg \
           sock_write_iter vfs_write ksys_write",
          "sk_stream_wait_memory", "TCP send", Class::Network),
    known("connect",
          "schedule_timeout wait_woken __inet_stream_connect inet_stream_connect __sys_connect \
           __x64_sys_connect",
          "__inet_stream_connect", "TCP connect", Class::Network),
    known("close",
          "schedule_timeout wait_woken sk_stream_wait_close __tcp_close tcp_close inet_release \
           sock_close __fput __x64_sys_close",
          "sk_stream_wait_close", "TCP close", Class::Network),
    known("read",
          "schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg sock_recvmsg \
           sock_read_iter vfs_read ksys_read",
          "__skb_wait_for_more_packets", "UDP receive", Class::Network),
    known("read",
          "schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram \
           packet_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read",
          "__skb_wait_for_more_packets", "packet receive", Class::Network),
    known("read",
          "schedule_timeout __skb_wait_for_more_packets __skb_recv_datagram skb_recv_datagram \
           netlink_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read",
          "__skb_wait_for_more_packets", "kernel message", Class::Idle),
    known("epoll_wait",
          "schedule_hrtimeout_range_clock do_epoll_wait __x64_sys_epoll_wait",
          "do_epoll_wait", "epoll", Class::Idle),
    known("poll",
          "schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_sys_poll \
           __x64_sys_poll",
          "do_sys_poll", "poll", Class::Idle),
    known("pselect6",
          "schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_select \
           core_sys_select do_pselect.constprop.0 __x64_sys_pselect6",
          "do_select", "select", Class::Idle),
    known("io_uring_enter",
          "io_cqring_wait __do_sys_io_uring_enter",
          "io_cqring_wait", "io_uring completions", Class::Idle),
    known("io_getevents",
          "read_events do_io_getevents __x64_sys_io_getevents",
          "read_events", "AIO completions", Class::Idle),
    known("clock_nanosleep",
          "do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep",
          "do_nanosleep", "timer", Class::Idle),
    known("clock_nanosleep",
          "do_cpu_nanosleep posix_cpu_nsleep __x64_sys_clock_nanosleep",
          "do_cpu_nanosleep", "timer", Class::Idle),
    known("pause",
          "__x64_sys_pause",
          "__x64_sys_pause", "signal", Class::Idle),
    known("rt_sigsuspend",
          "sigsuspend.isra.0 __x64_sys_rt_sigsuspend",
          "sigsuspend.isra.0", "signal", Class::Idle),
    known("rt_sigtimedwait",
          "schedule_hrtimeout_range_clock do_sigtimedwait.isra.0 __x64_sys_rt_sigtimedwait",
          "do_sigtimedwait.isra.0", "signal", Class::Idle),
    known("read",
          "do_wait_intr_irq timerfd_read_iter vfs_read ksys_read",
          "timerfd_read_iter", "timerfd", Class::Idle),
    known("read",
          "signalfd_read_iter vfs_read ksys_read",
          "signalfd_read_iter", "signalfd", Class::Idle),
    known("read",
          "schedule_timeout wait_woken inotify_read vfs_read ksys_read",
          "inotify_read", "file events", Class::Idle),
    known("read",
          "schedule_timeout wait_woken n_tty_read tty_read vfs_read ksys_read",
          "n_tty_read", "terminal input", Class::Idle),
    known("read",
          "fuse_dev_do_read fuse_dev_read vfs_read ksys_read",
          "fuse_dev_do_read", "request to serve", Class::Idle),
    known("read",
          "userfaultfd_read_iter vfs_read ksys_read",
          "userfaultfd_read_iter", "request to serve", Class::Idle),
    known("futex",
          "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex",
          "futex_do_wait", "futex", Class::Lock),
    known("futex_waitv",
          "futex_wait_multiple __do_sys_futex_waitv",
          "futex_wait_multiple", "futex", Class::Lock),
    known("futex",
          "rt_mutex_schedule rt_mutex_slowlock_block.constprop.0 rt_mutex_wait_proxy_lock \
           futex_lock_pi do_futex __x64_sys_futex",
          "futex_lock_pi", "futex (priority inheritance)", Class::Lock),
    known("flock",
          "locks_lock_inode_wait __do_sys_flock",
          "locks_lock_inode_wait", "flock", Class::Lock),
    known("fcntl",
          "fcntl_setlk do_fcntl __x64_sys_fcntl",
          "fcntl_setlk", "POSIX file lock", Class::Lock),
    known("openat",
          "schedule_timeout __break_lease do_dentry_open vfs_open path_openat do_filp_open \
           do_sys_openat2 __x64_sys_openat",
          "__break_lease", "open file lease", Class::Lock),
    known("semop",
          "schedule_hrtimeout_range_clock __do_semtimedop do_semtimedop",
          "__do_semtimedop", "semaphore", Class::Lock),
    known("mq_timedreceive",
          "schedule_hrtimeout_range_clock wq_sleep do_mq_timedreceive __x64_sys_mq_timedreceive",
          "wq_sleep", "message queue empty", Class::Process),
    known("mq_timedsend",
          "schedule_hrtimeout_range_clock wq_sleep do_mq_timedsend __x64_sys_mq_timedsend",
          "wq_sleep", "message queue full", Class::Process),
    known("msgrcv",
          "do_msgrcv",
          "do_msgrcv", "message queue empty", Class::Process),
    known("msgsnd",
          "do_msgsnd",
          "do_msgsnd", "message queue full", Class::Process),
    known("read",
          "do_wait_intr_irq eventfd_read vfs_read ksys_read",
          "eventfd_read", "eventfd", Class::Process),
    known("write",
          "schedule_timeout wait_woken n_tty_write file_tty_write.isra.0 vfs_write ksys_write",
          "n_tty_write", "terminal output", Class::Process),
    known("wait4",
          "do_wait kernel_wait4",
          "do_wait", "child process", Class::Process),
    known("waitid",
          "do_wait kernel_waitid __do_sys_waitid",
          "do_wait", "child process", Class::Process),
    known("vfork",
          "schedule_timeout __wait_for_common wait_for_completion_state kernel_clone \
           __x64_sys_vfork",
          "kernel_clone", "vfork child", Class::Process),
    known("execve",
          "begin_new_exec load_elf_binary bprm_execve do_execveat_common.isra.0 \
           __x64_sys_execve",
          "begin_new_exec", "end of other threads", Class::Process),
    known("tgkill",
          "do_signal_stop get_signal arch_do_signal_or_restart exit_to_user_mode_loop",
          "do_signal_stop", "stopped by a signal", Class::Process),
    known("getpid",
          "ptrace_stop ptrace_do_notify ptrace_notify syscall_trace_enter",
          "ptrace_stop", "stopped by a tracer", Class::Process),
    known("mmap",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable \
           vm_mmap_pgoff",
          "vm_mmap_pgoff", "mmap lock", Class::Lock),
    known("(user)",
          "schedule_preempt_disabled rwsem_down_read_slowpath down_read_killable \
           lock_mm_and_find_vma exc_page_fault asm_exc_page_fault",
          "lock_mm_and_find_vma", "mmap lock", Class::Lock),
    known("madvise",
          "schedule_preempt_disabled rwsem_down_read_slowpath down_read madvise_do_behavior \
           do_madvise __x64_sys_madvise",
          "madvise_do_behavior", "mmap lock", Class::Lock),
    known("munmap",
          "__vma_start_write __split_vma vms_gather_munmap_vmas do_vmi_align_munmap \
           do_vmi_munmap __vm_munmap __x64_sys_munmap",
          "__vma_start_write", "mmap lock (VMA)", Class::Lock),
    known("exit",
          "schedule_preempt_disabled rwsem_down_read_slowpath down_read do_exit __x64_sys_exit \
           x64_sys_call",
          "do_exit", "mmap lock", Class::Lock),
    known("pwrite64",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write ext4_file_write_iter \
           vfs_write __x64_sys_pwrite64",
          "ext4_file_write_iter", "inode lock", Class::Lock),
    known("pwrite64",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write \
           ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
          "ext4_buffered_write_iter", "inode lock", Class::Lock),
    known("ftruncate",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write_killable do_truncate \
           do_ftruncate do_sys_ftruncate __x64_sys_ftruncate",
          "do_truncate", "inode lock", Class::Lock),
    known("unlink",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write do_unlinkat \
           __x64_sys_unlink",
          "do_unlinkat", "directory lock", Class::Lock),
    known("openat",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write path_openat \
           do_filp_open do_sys_openat2 __x64_sys_openat",
          "path_openat", "directory lock", Class::Lock),
    known("mkdir",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write filename_create \
           do_mkdirat __x64_sys_mkdir",
          "filename_create", "directory lock", Class::Lock),
    known("rename",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write do_renameat2 \
           __x64_sys_rename",
          "do_renameat2", "directory lock", Class::Lock),
    known("access",
          "schedule_preempt_disabled rwsem_down_read_slowpath down_read walk_component \
           path_lookupat filename_lookup user_path_at do_faccessat __x64_sys_access",
          "walk_component", "directory lock", Class::Lock),
    known("getdents64",
          "schedule_preempt_disabled rwsem_down_read_slowpath down_read_killable iterate_dir \
           __x64_sys_getdents64",
          "iterate_dir", "directory lock", Class::Lock),
    known("newfstatat",
          "d_alloc_parallel __lookup_slow walk_component path_lookupat filename_lookup \
           vfs_statx vfs_fstatat __do_sys_newfstatat",
          "d_alloc_parallel", "dentry lookup", Class::Lock),
    known("pwrite64",
          "schedule_preempt_disabled rwsem_down_write_slowpath down_write \
           ext4_da_get_block_prep ext4_block_write_begin ext4_da_write_begin \
           generic_perform_write ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
          "ext4_da_get_block_prep", "file system lock", Class::Lock),
    known("ftruncate",
          "io_schedule __folio_lock truncate_inode_pages_range truncate_pagecache ext4_setattr \
           notify_change do_truncate do_ftruncate do_sys_ftruncate __x64_sys_ftruncate",
          "truncate_inode_pages_range", "page lock", Class::Lock),
    known("fallocate",
          "io_schedule __filemap_get_folio ext4_block_zero_page_range ext4_zero_partial_blocks \
           ext4_alloc_file_blocks.isra.0 ext4_fallocate vfs_fallocate __x64_sys_fallocate",
          "__filemap_get_folio", "page lock", Class::Lock),
    known("openat",
          "schedule_timeout wait_for_completion synchronize_rcu_normal expand_files alloc_fd \
           do_sys_openat2 __x64_sys_openat",
          "synchronize_rcu_normal", "RCU grace period", Class::Cpu),
    known("pread64",
          "io_schedule folio_wait_bit_common filemap_get_pages filemap_read vfs_read \
           __x64_sys_pread64",
          "filemap_get_pages", "page read", Class::Disk),
    known("execve",
          "io_schedule folio_wait_bit_common filemap_get_pages filemap_read __kernel_read \
           bprm_execve do_execveat_common.isra.0 __x64_sys_execve",
          "filemap_get_pages", "page read", Class::Disk),
    known("sendfile",
          "io_schedule folio_wait_bit_common filemap_get_pages filemap_splice_read \
           splice_direct_to_actor do_splice_direct do_sendfile",
          "filemap_get_pages", "page read", Class::Disk),
    known("read",
          "io_schedule folio_wait_bit_common filemap_get_pages filemap_read \
           do_iter_readv_writev vfs_iter_read backing_file_read_iter ovl_read_iter vfs_read \
           ksys_read",
          "filemap_get_pages", "page read", Class::Disk),
    known("pwrite64",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_block_write_begin \
           ext4_da_write_begin generic_perform_write ext4_buffered_write_iter vfs_write \
           __x64_sys_pwrite64",
          "ext4_block_write_begin", "page read", Class::Disk),
    known("(user)",
          "io_schedule folio_wait_bit_common filemap_fault __do_fault \
           do_fault __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault",
          "filemap_fault", "mapped page read", Class::Disk),
    known("(user)",
          "io_schedule folio_wait_bit_common filemap_read_folio filemap_fault __do_fault \
           do_fault __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault",
          "filemap_read_folio", "mapped page read", Class::Disk),
    known("execve",
          "io_schedule folio_wait_bit_common filemap_fault __do_fault do_fault \
           __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault elf_load \
           load_elf_binary bprm_execve do_execveat_common.isra.0 __x64_sys_execve",
          "filemap_fault", "mapped page read", Class::Disk),
    known("pread64",
          "schedule_timeout io_schedule_timeout __iomap_dio_rw iomap_dio_rw ext4_file_read_iter \
           vfs_read __x64_sys_pread64",
          "__iomap_dio_rw", "direct I/O", Class::Disk),
    known("fsync",
          "io_schedule folio_wait_bit folio_wait_writeback __filemap_fdatawait_range \
           file_write_and_wait_range generic_buffers_fsync_noflush \
           ext4_fsync_nojournal.constprop.0 ext4_sync_file do_fsync __x64_sys_fsync",
          "folio_wait_writeback", "fsync writeback", Class::Disk),
    known("fdatasync",
          "schedule_timeout io_schedule_timeout wait_for_completion_io_timeout submit_bio_wait \
           blkdev_issue_flush ext4_sync_file do_fsync __x64_sys_fdatasync",
          "submit_bio_wait", "block flush", Class::Disk),
    known("ftruncate",
          "schedule_timeout io_schedule_timeout wait_for_completion_io_timeout submit_bio_wait \
           blkdev_issue_discard ext4_free_blocks ext4_ext_remove_space ext4_ext_truncate \
           ext4_truncate ext4_setattr notify_change do_truncate do_ftruncate do_sys_ftruncate \
           __x64_sys_ftruncate",
          "submit_bio_wait", "block discard", Class::Disk),
    known("fsync",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit __sync_dirty_buffer \
           ext4_write_inode __writeback_single_inode writeback_single_inode sync_inode_metadata \
           generic_buffers_fsync_noflush ext4_fsync_nojournal.constprop.0 ext4_sync_file \
           do_fsync __x64_sys_fsync",
          "__sync_dirty_buffer", "metadata write", Class::Disk),
    known("fsync",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit fsync_buffers_list \
           ext4_fsync_nojournal.constprop.0 ext4_sync_file do_fsync __x64_sys_fsync",
          "fsync_buffers_list", "metadata write", Class::Disk),
    known("syncfs",
          "io_schedule rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio __submit_bio \
           submit_bio_noacct_nocheck __block_write_full_folio blkdev_writepages do_writepages \
           filemap_fdatawrite_wbc __filemap_fdatawrite_range sync_filesystem __x64_sys_syncfs",
          "rq_qos_wait", "block throttling", Class::Disk),
    known("syncfs",
          "wb_wait_for_completion sync_inodes_sb sync_filesystem __x64_sys_syncfs",
          "wb_wait_for_completion", "sync writeback", Class::Disk),
    known("syncfs",
          "schedule_timeout wait_for_completion __flush_workqueue ext4_sync_fs sync_filesystem \
           __x64_sys_syncfs",
          "__flush_workqueue", "file system flush of work", Class::Disk),
    known("fsync",
          "jbd2_log_wait_commit ext4_sync_file do_fsync __x64_sys_fsync",
          "jbd2_log_wait_commit", "journal commit", Class::Disk),
    known("rename",
          "wait_transaction_locked add_transaction_credits start_this_handle \
           jbd2__journal_start ext4_rename vfs_rename do_renameat2 __x64_sys_rename",
          "wait_transaction_locked", "journal transaction", Class::Disk),
    known("unlink",
          "io_schedule bit_wait_io __wait_on_bit_lock out_of_line_wait_on_bit_lock \
           do_get_write_access jbd2_journal_get_write_access __ext4_journal_get_write_access \
           ext4_orphan_add __ext4_unlink ext4_unlink vfs_unlink do_unlinkat __x64_sys_unlink",
          "do_get_write_access", "journal buffer", Class::Disk),
    known("ftruncate",
          "io_schedule folio_wait_bit folio_wait_writeback truncate_inode_partial_folio \
           truncate_inode_pages_range truncate_pagecache ext4_setattr notify_change do_truncate \
           do_ftruncate do_sys_ftruncate __x64_sys_ftruncate",
          "folio_wait_writeback", "page writeback", Class::Disk),
    known("newfstatat",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit __ext4_find_entry \
           ext4_lookup __lookup_slow walk_component path_lookupat filename_lookup vfs_statx \
           vfs_fstatat __do_sys_newfstatat",
          "__ext4_find_entry", "directory read", Class::Disk),
    known("newfstatat",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_read_bh \
           ext4_bread __ext4_read_dirblock dx_probe ext4_dx_find_entry __ext4_find_entry \
           ext4_lookup __lookup_slow walk_component path_lookupat filename_lookup vfs_statx \
           vfs_fstatat __do_sys_newfstatat",
          "ext4_read_bh", "directory read", Class::Disk),
    known("newfstatat",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit __ext4_get_inode_loc \
           __ext4_get_inode_loc_noinmem __ext4_iget ext4_lookup __lookup_slow walk_component \
           path_lookupat filename_lookup vfs_statx vfs_fstatat __do_sys_newfstatat",
          "__ext4_get_inode_loc", "inode read", Class::Disk),
    known("pwrite64",
          "io_schedule bit_wait_io __wait_on_bit out_of_line_wait_on_bit ext4_wait_block_bitmap \
           ext4_mb_init_cache ext4_mb_load_buddy_gfp ext4_mb_scan_group \
           ext4_mb_scan_groups_linear.constprop.0 ext4_mb_regular_allocator ext4_mb_new_blocks \
           ext4_ext_map_blocks ext4_map_blocks ext4_iomap_begin iomap_iter __iomap_dio_rw \
           iomap_dio_rw ext4_file_write_iter vfs_write __x64_sys_pwrite64",
          "ext4_wait_block_bitmap", "metadata read", Class::Disk),
    known("newfstatat",
          "request_wait_answer __fuse_simple_request fuse_lookup_name fuse_lookup __lookup_slow \
           walk_component path_lookupat filename_lookup vfs_statx vfs_fstatat \
           __do_sys_newfstatat",
          "request_wait_answer", "FUSE answer", Class::Disk),
    known("newfstatat",
          "fuse_get_req __fuse_simple_request fuse_lookup_name fuse_lookup __lookup_slow \
           walk_component path_lookupat filename_lookup vfs_statx vfs_fstatat \
           __do_sys_newfstatat",
          "fuse_get_req", "FUSE answer", Class::Disk),
    known("openat",
          "jbd2_log_wait_commit ext4_sync_file ovl_copy_up_file ovl_copy_up_one \
           ovl_copy_up_flags ovl_open do_dentry_open vfs_open path_openat do_filp_open \
           do_sys_openat2 __x64_sys_openat",
          "jbd2_log_wait_commit", "overlay copy-up", Class::Disk),
    known("write",
          "schedule_timeout reclaim_throttle shrink_lruvec shrink_node do_try_to_free_pages \
           try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg __mem_cgroup_charge \
           filemap_add_folio __filemap_get_folio ext4_da_write_begin generic_perform_write \
           ext4_buffered_write_iter vfs_write ksys_write",
          "reclaim_throttle", "memory cgroup reclaim", Class::Memory),
    known("write",
          "io_schedule folio_wait_bit folio_wait_writeback shrink_folio_list shrink_lruvec \
           shrink_node do_try_to_free_pages try_to_free_mem_cgroup_pages try_charge_memcg \
           charge_memcg __mem_cgroup_charge filemap_add_folio __filemap_get_folio \
           ext4_da_write_begin generic_perform_write ext4_buffered_write_iter vfs_write \
           ksys_write",
          "folio_wait_writeback", "memory cgroup reclaim", Class::Memory),
    known("(user)",
          "handle_userfault __handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault",
          "handle_userfault", "userfaultfd answer", Class::Memory),
    known("membarrier",
          "schedule_timeout wait_for_completion synchronize_rcu_normal __x64_sys_membarrier",
          "synchronize_rcu_normal", "RCU grace period", Class::Cpu),
    known("write",
          "schedule_timeout wait_for_completion synchronize_rcu_normal rcu_sync_enter \
           percpu_down_write cgroup_procs_write_start __cgroup_procs_write cgroup_procs_write \
           kernfs_fop_write_iter vfs_write ksys_write",
          "synchronize_rcu_normal", "RCU grace period", Class::Cpu),
    known("sched_setaffinity",
          "schedule_timeout wait_for_completion affine_move_task __set_cpus_allowed_ptr \
           __sched_setaffinity sched_setaffinity __x64_sys_sched_setaffinity",
          "affine_move_task", "move to another CPU", Class::Cpu),
    known("fadvise64",
          "schedule_timeout wait_for_completion __flush_work __lru_add_drain_all \
           generic_fadvise ksys_fadvise64_64 __x64_sys_fadvise64",
          "__flush_work", "page cache drain", Class::Cpu),
    known("(user)",
          "schedule_timeout wait_for_completion exit_aio __mmput do_exit do_group_exit \
           get_signal arch_do_signal_or_restart exit_to_user_mode_loop",
          "exit_aio", "end of I/O at exit", Class::Disk),
];
