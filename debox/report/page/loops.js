// SPDX-License-Identifier: MIT OR Apache-2.0
// Event loops, and what keeps them from their events.

const causeOfLoop = (cause) => cause.is_inner_loop ? "another loop inside it" : cause.label;

function loops() {
  const rows = data.loops;
  if (!rows.length) return;
  const most = rows[0];
  const causes = (one) => one.causes.map((cause) => `${causeOfLoop(cause)} in ${cause.call}: ${time(cause.blocked_ns)}, ${counted(cause.count, "time")}, longest ${time(cause.longest_ns)}`).join("; ");
  folded("loops", "Event loops", most.blocked_ns ? `${most.comm} (${most.tid}) waited ${time(most.blocked_ns)} for other things than its events` : `${counted(rows.length, "loop")}; none waited for anything but its events`,
    "Threads that wait for the events of several clients. While such a thread waits for something else, all its clients wait. " +
    "A turn is the time from the end of a wait for events to the beginning of the next: waiting for other things, waiting for a CPU, and computing.",
    unfiltered("thread"),
    table([
      ["loop", (l) => threadName(l.comm, l.tid, l.pid === l.tid), "long", (l) => l.comm], ["waits for events", (l) => count(l.waits), "n", (l) => l.waits],
      ["waited for other things", (l) => time(l.blocked_ns), "n", (l) => l.blocked_ns],
      ["longest turn", (l) => l.longest_turn_ns ? `${time(l.longest_turn_ns)} at ${time(l.longest_turn_at_ns)}` : "", "n", (l) => l.longest_turn_ns],
      ["turns of 10 ms or more", (l) => count(l.long_turns), "n", (l) => l.long_turns],
      ["what for", causes, "long", causes], ["called from", (l) => callerName(l.causes.map((cause) => cause.caller).filter(Boolean)[0]), "long"],
    ], rows, { id: (l) => anchor("loop", l.tid), caption: "Event loops", pick: (l) => choose({ thread: l.comm }),
      shows: (l) => chosen.thread === null || l.comm === chosen.thread }));
}

// Who runs the inner loop: the innermost function that is not of a library of event loops.
const OF_LIBRARIES = /^(uv_|ev_|event_|epoll_|g_main_|g_poll|poll|ppoll|select|__|syscall\b)/;
const beginner = (cause) => cause.is_inner_loop ? cause.stack.findLast((frame) => !OF_LIBRARIES.test(frame)) : "";

// The loops that were blocked for longest, as cards.
function loopCards() {
  const least = data.active ? data.active.of_ns * 0.01 : 1;
  return data.loops.filter((one) => one.blocked_ns >= least && one.causes.length).slice(0, 3).map((one) => {
    const cause = one.causes[0];
    return card(`The event loop of ${one.comm} was blocked`,
      [make("b", {}, time(one.blocked_ns)), one.longest_turn_ns ? `; its longest turn took ${time(one.longest_turn_ns)}` : "",
        one.long_turns > 1 ? `; ${count(one.long_turns)} turns took 10 ms or more` : ""],
      [fact("Loop", threadName(one.comm, one.tid, one.pid === one.tid)),
        fact("Waited for", `${causeOfLoop(cause)} in ${cause.call}, ${counted(cause.count, "time")}, longest ${time(cause.longest_ns)}`),
        fact("For", cause.resource), fact("Called from", callerName(cause.caller)), fact("Begun by", callerName(beginner(cause)))],
      [...cause.stack].reverse(), { thread: one.comm });
  });
}
