// SPDX-License-Identifier: MIT OR Apache-2.0
// Single calls: the slowest, and those that had not returned.

const spent = (call) => Math.max(0, call.budget.wall_ns - call.budget.idle_ns);

function fitsCall(call) {
  const waited = (cause) => cause === "waiting for a CPU" || cause === "CPU quota" ? call.budget.runqueue_ns + call.budget.preempted_ns > 0 : true;
  return fits({ call: call.call, labels: call.sleeps.map((sleep) => sleep.label), waited, thread: call.comm,
    frames: call.stack.length ? call.stack : call.caller ? [call.caller] : [], begin: call.at_ns, end: call.at_ns + call.budget.wall_ns });
}

function singleCall(call) {
  const one = { budget: call.budget, resting_ns: 0 };
  const summary = `${time(spent(call))}, ${call.comm} (${call.tid}), at ${time(call.at_ns)}` +
    (call.sleeps.length ? `; ${call.sleeps[0].label} ${time(call.sleeps[0].blocked_ns)}` : "") + (call.partial ? "; began before it was monitored" : "") +
    (call.in_flight ? "; had not returned" : "");
  const details = make("details", { class: "slow" }, make("summary", {}, make("strong", {}, `${call.call} `), summary));
  const fill = () => details.append(
    bars(one, Math.max(1, spent(call))),
    make("p", {}, [...PARTS, ["idle", "", () => call.budget.idle_ns]].filter(([, , of]) => of(one) > 0).map(([name, , of]) => `${name} ${time(of(one))}`).join(", ") +
      (call.in_flight ? ". Had not returned." : `. Returned ${call.ret}.`) + (call.caller ? ` Called from ${call.caller}.` : "")),
    call.sleeps.length ? table([
      ["after", (s) => time(s.begin_ns), "n"], ["blocked", (s) => time(s.blocked_ns), "n"], ["then waited for a CPU", (s) => time(s.runqueue_ns), "n"],
      ["waited for", (s) => `${s.label} (${s.class})` + (s.resource ? `: ${s.resource}` : ""), "long"], ["in", (s) => s.site, "long"],
      ["held by", (s) => s.owner || "", "long"], ["ended by", (s) => s.waker]], call.sleeps, { caption: `Sleeps of this ${call.call}` }) : "",
    call.sleeps_left_out ? make("p", { class: "quiet" }, `${count(call.sleeps_left_out)} more sleeps.`) : "",
    call.stack.length ? make("pre", {}, call.stack.slice().reverse().join("\n")) : "");
  details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) fill(); });
  const text = [call.call, summary, call.caller, ...call.stack, ...call.sleeps.flatMap((s) => [s.label, s.resource, s.site, s.owner, s.waker])].join(" ").toLowerCase();
  return { call, details, text };
}

// At first ten; those that fit the selection and the search.
function singleCalls(calls) {
  const made = calls.map(singleCall);
  const list = make("div", {}, made.map((one) => one.details));
  const more = make("button", { type: "button", class: "more", onclick: () => { whole = !whole; show(); } });
  let whole = false;
  const show = () => {
    const left = made.filter((one) => fitsCall(one.call) && (!wanted || one.text.includes(wanted)));
    made.forEach((one) => { one.details.hidden = true; });
    left.slice(0, whole ? left.length : ROWS).forEach((one) => { one.details.hidden = false; });
    more.hidden = left.length <= ROWS;
    more.textContent = whole ? `Show ${ROWS} calls` : `Show all ${count(left.length)} calls`;
    none.hidden = left.length > 0;
  };
  const none = make("p", { class: "quiet" }, "None of them fits what is selected.");
  reactions.push(show);
  searches.push(show);
  show();
  return [list, more, none];
}

function slowest() {
  if (!data.slowest.length) return;
  const first = data.slowest[0];
  folded("slowest", "The slowest calls", `${first.call}: ${time(spent(first))} at ${time(first.at_ns)}`,
    "Single calls, longest first, without the time of idle waits; at most eight of a name. Each has its stack and its sleeps.",
    unfiltered("call", "cause", "thread", "frame", "from"), singleCalls(data.slowest));
}

function inFlight() {
  if (!data.in_flight.length) return;
  const idle = (call) => call.sleeps.length > 0 && call.sleeps[0].class === "idle";
  const made = folded("in-flight", "Calls that had not returned when the recording ended",
    `${count(data.in_flight.length + data.in_flight_left_out)}, of which ${count(data.in_flight.filter(idle).length)} waited for events`,
    "Longest first, without the time of idle waits: what they came to by then, and what they waited for. A wait " +
    "for events is where an idle server is found; another one that is long may never end.",
    unfiltered("call", "cause", "thread", "frame", "from"), singleCalls(data.in_flight),
    data.in_flight_left_out ? make("p", { class: "quiet" }, `${count(data.in_flight_left_out)} more calls had not returned.`) : null);
  if (data.deadlocks.length) made.querySelector("details").open = true;
}
