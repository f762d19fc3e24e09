/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * debox.bpf.c: everything that runs inside the kernel, one file per purpose.
 *
 *   kernel.h   kernel types        calls.h   closing a call       switch.h  the parts of a call
 *   shared.h   tables' layouts     record.h  the thread's record  locks.h   contended locks
 *   state.h    maps and settings   sites.h   where calls sleep    waiters.h who waits for the same
 *   callsites.h  userstack.h  places in the program where calls come from
 *   tap.h      the kernel tap      life.h    enrolment and end    context.h interrupt or task
 *   usertap.h  the user tap        stacks.h  kernel stacks        irq.h     interrupts
 *   waits.h    one wait            resources.h what is waited on  owners.h  who holds it
 *   chains.h   who waits for whom              client.h    the broker's clients
 *   events.h   what is sent        cpus.h   who has the CPU that a thread waits for
 *   history.h  the stream of all records    live.h    sums for a view that is refreshed
 *   samples.h  where in the program it computes
 *   trigger.h  predicates over a call's record, and what they set off
 */
#include "kernel.h"
#include "shared.h"
#include "state.h"
#include "tap.h"
#include "switch.h"
#include "locks.h"
#include "life.h"
#include "irq.h"
#include "samples.h"
