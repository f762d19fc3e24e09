// SPDX-License-Identifier: MIT OR Apache-2.0
// The tables: calls, waits, who had the CPU, and threads.

function calls() {
  const rows = [...data.calls].sort((a, b) => active(b) - active(a));
  const widest = Math.max(1, ...rows.map(active));
  const waits = (c) => c.budget.runqueue_ns + c.budget.preempted_ns;
  const blocked = (c) => Math.max(0, c.budget.blocked_ns - leftOut(c));
  section("calls", "Which calls the time went to",
    "Each bar is the wall time of all calls of a name without idle waits, in the parts of its budget.",
    partsLegend(), unfiltered("call"),
    table([
      ["call", (c) => c.name, "", (c) => c.name], ["", (c) => bars(c, widest), "bars"], ["time", (c) => time(active(c)), "n", active],
      ["calls", (c) => count(c.count), "n", (c) => c.count], ["CPU", (c) => time(c.budget.cpu_ns), "n", (c) => c.budget.cpu_ns],
      ["blocked", (c) => time(blocked(c)), "n", blocked], ["waits for a CPU", (c) => time(waits(c)), "n", waits],
      ["idle", (c) => time(leftOut(c)), "n", leftOut],
      ["median", (c) => time(c.median_ns), "n", (c) => c.median_ns], ["99 %", (c) => time(c.p99_ns), "n", (c) => c.p99_ns],
      ["longest", (c) => time(c.max_ns), "n", (c) => c.max_ns], ["slept", (c) => count(c.slept), "n", (c) => c.slept],
      ["faults", (c) => count(c.faults_minor + c.faults_major), "n", (c) => c.faults_minor + c.faults_major],
      ["errors", (c) => c.errors.slice(0, 3).map(([e, n]) => `${e} ${count(n)}`).join(", "), "short", (c) => c.errors.reduce((sum, [, n]) => sum + n, 0)],
    ], rows, { id: (c) => anchor("call", c.name), caption: "Calls by time", pick: (c) => choose({ call: c.name }),
      shows: (c) => chosen.call === null || c.name === chosen.call }),
    data.between_calls ? make("p", {}, `Between calls, threads were off the CPU ${count(data.between_calls.count)} times: ` +
      `${time(data.between_calls.budget.blocked_ns)} blocked, ${time(data.between_calls.budget.runqueue_ns)} waiting for a CPU, ` +
      `${time(data.between_calls.budget.preempted_ns)} pushed off it.` +
      (data.account ? ` They computed there for ${time(data.account.user_cpu_ns)}.` : "")) : null);
}

function waits() {
  if (!data.waits.length) return;
  const asleep = data.waits.filter((wait) => wait.is_rest || wait.class === "idle").length;
  const note = make("p", { class: "quiet" });
  const say = () => { note.textContent = asleep && !withIdle ? `${counted(asleep, "row")} of idle waits and waits for work ${asleep === 1 ? "is" : "are"} folded away.` : ""; };
  reactions.push(say);
  say();
  section("waits", "Who waited for what, and for whom",
    "Waits of the same threads, in the same call from the same place, for the same thing are one row.",
    unfiltered("call", "cause", "thread", "frame", "from"),
    table([
      ["thread", (w) => (w.is_main ? "main of " : "") + (w.many_threads ? `${w.comm} (several)` : threadName(w.comm, w.tid, w.is_main)), "long", (w) => w.comm],
      ["call", (w) => w.call, "", (w) => w.call], ["waited for", (w) => w.label + (w.resource ? `: ${w.resource}` : w.resources > 1 ? `: ${count(w.resources)} different ones` : ""), "long", (w) => w.label],
      ["time", (w) => time(w.blocked_ns), "n", (w) => w.blocked_ns], ["times", (w) => count(w.count), "n", (w) => w.count],
      ["longest", (w) => time(w.longest_ns), "n", (w) => w.longest_ns], ["called from", (w) => callerName(w.caller), "long", (w) => w.caller || ""],
      ["held by", ownerWords, "long", ownerWords], ["held up by", (w) => heldUpWords(w), "long", (w) => heldUpWords(w)], ["longest ended by", (w) => w.waker, "", (w) => w.waker],
      ["class", (w) => w.is_rest ? "waiting for work" : w.class, "", (w) => w.class],
    ], data.waits, { id: (w, index) => `wait-${index}`, caption: "Waits by time", pick: (w) => choose({ call: w.call, cause: w.label }),
      shows: (w) => (withIdle || !(w.is_rest || w.class === "idle")) &&
        fits({ call: w.call, labels: [w.label], thread: w.comm, frames: w.caller ? [w.caller] : [], begin: w.first_ns, end: w.last_ns }) }),
    note, data.waits_left_out ? make("p", { class: "quiet" }, `${count(data.waits_left_out)} more kinds of waits were shorter.`) : null);
}

function cpuWaits() {
  const waits = data.cpu_waits;
  if (!waits || !waits.waited_ns) return;
  const quota = { kind: "quota", ns: waits.throttled_ns, calls: waits.throttled_calls, longest_ns: waits.throttled_longest_ns };
  const others = { kind: "many", ns: waits.others_ns, calls: null, longest_ns: null };
  const rows = [quota, ...waits.owners, others].filter((owner) => owner.ns > 0).sort((a, b) => b.ns - a.ns);
  const most = rows.find((owner) => owner.kind !== "many");
  folded("cpu-waits", "Who had the CPU while threads waited for one", most ? `most of all ${cpuOwnerWords(most)}: ${time(most.ns)} of ${time(waits.waited_ns)}` : "",
    "In calls and between them. Of each call the largest owner is known; the others of the same call are further processes.",
    unfiltered(),
    table([
      ["who", cpuOwnerWords, "long", cpuOwnerWords], ["time", (owner) => time(owner.ns), "n", (owner) => owner.ns],
      ["calls", (owner) => (owner.calls === null ? "" : count(owner.calls)), "n", (owner) => owner.calls || 0],
      ["longest", (owner) => (owner.longest_ns === null ? "" : time(owner.longest_ns)), "n", (owner) => owner.longest_ns || 0],
    ], rows, { caption: "Who had the CPU" }));
}

function matrix() {
  const { labels, calls, cells, labels_left_out, calls_left_out } = data.matrix;
  if (!labels.length) return;
  const place = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Waits by call and label" });
  // Waits for work have the label futex.
  const resting = new Map([...data.calls, ...(data.between_calls ? [data.between_calls] : [])].map((call) => [call.name, call.resting_ns]));
  const cellTime = (row, at) => Math.max(0, cells[row][at].blocked_ns - (!withIdle && labels[at].label === "futex" ? resting.get(calls[row]) || 0 : 0));
  const draw = () => {
    const across = labels.map((label, at) => at).filter((at) => calls.some((call, row) => cellTime(row, at) > 0) && (withIdle || labels[at].class !== "idle") && (chosen.cause === null || !isLabel(chosen.cause) || labels[at].label === chosen.cause));
    const down = calls.map((call, at) => at).filter((at) => (chosen.call === null || calls[at] === chosen.call) && across.some((label) => cells[at][label].sleeps && cellTime(at, label)));
    const most = Math.max(1, ...down.flatMap((row) => across.map((label) => cellTime(row, label))));
    const head = make("tr", {}, make("th", { scope: "col" }, "call"), across.map((at) => make("th", { scope: "col" },
      labels[at].label, make("small", {}, `${labels[at].class}, ${count(labels[at].sleeps)}`), make("small", {}, time(calls.reduce((sum, call, row) => sum + cellTime(row, at), 0))))));
    const body = down.map((row) => make("tr", {}, make("th", { scope: "row" }, calls[row]), across.map((at) => {
      const cell = cells[row][at];
      if (!cell.sleeps) return make("td", {}, "");
      const left = cellTime(row, at);
      if (left < cell.blocked_ns) return make("td", { title: `${time(cell.blocked_ns - left)} of waits for work are folded away` }, left ? ["", make("small", {}, time(left))] : "");
      const shade = 0.1 + 0.9 * Math.max(0, 1 + Math.log10(cell.blocked_ns / most + 1e-9) / 5);
      return make("td", { style: `background: rgba(var(--heat), calc(var(--heat-most) * ${shade.toFixed(2)}))`,
        title: `${calls[row]}, ${labels[at].label}: ${count(cell.sleeps)} sleeps of ${count(cell.calls)} calls, ${time(cell.blocked_ns)}` },
        count(cell.sleeps), make("small", {}, time(cell.blocked_ns)));
    })));
    place.replaceChildren(down.length ? make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, body))
      : make("p", { class: "quiet" }, "No sleep of this kind."));
  };
  reactions.push(draw);
  draw();
  const more = labels_left_out + calls_left_out;
  folded("matrix", "What it waited for, by call", `${count(labels.length)} causes, ${count(calls.length)} calls`,
    "Labels across, calls down: how often calls of a name slept for that reason, and how long. Under each " +
    "label stand its class, all its sleeps and their time. A column with one dark " +
    "cell is one call's trouble, a column with many is a resource's.",
    unfiltered("call", "cause"), place,
    more ? make("p", { class: "quiet" }, `${labels_left_out} labels and ${calls_left_out} calls with shorter waits are left out.`) : null);
}

// Threads of one name together: a build starts its compiler many times.
function byName(threads) {
  const groups = new Map();
  for (const thread of threads) {
    const group = groups.get(thread.comm) || { comm: thread.comm, threads: 0, calls: 0, computed: 0, resting_ns: 0, user_cpu_ns: 0, budget: {} };
    group.threads += 1;
    group.calls += thread.calls;
    group.resting_ns += thread.resting_ns;
    group.user_cpu_ns += thread.user_cpu_ns || 0;
    group.computed += thread.budget.cpu_ns + (thread.user_cpu_ns || 0);
    for (const [part, ns] of Object.entries(thread.budget)) group.budget[part] = (group.budget[part] || 0) + (ns || 0);
    groups.set(thread.comm, group);
  }
  if (groups.size === threads.length || groups.size < 2) return null;
  const rows = [...groups.values()].sort((a, b) => b.computed - a.computed);
  const widest = Math.max(1, ...rows.map(worked));
  return [make("h3", {}, "By name"), table([
    ["name", (g) => g.comm, "", (g) => g.comm], ["threads", (g) => count(g.threads), "n", (g) => g.threads], ["", (g) => bars(g, widest), "bars"],
    ["time", (g) => time(worked(g)), "n", worked], ["calls", (g) => count(g.calls), "n", (g) => g.calls],
    ["CPU, in calls and between them", (g) => time(g.computed), "n", (g) => g.computed],
  ], rows, { caption: "Threads by name", pick: (g) => choose({ thread: g.comm }), shows: (g) => chosen.thread === null || g.comm === chosen.thread }),
  make("h3", {}, "Each")];
}

// Threads that only waited: at rest by the rule of the findings, or with less than the findings report.
function threads() {
  if (!data.threads.length) return;
  const all = data.threads.reduce((sum, thread) => sum + worked(thread), 0);
  const rests = (thread) => thread.rest === "at_rest" || thread.rest === "cannot_tell" || (thread.rest !== "stuck" && worked(thread) < all * 0.01);
  const rows = [...data.threads].sort((a, b) => rests(a) - rests(b) || worked(b) - worked(a));
  const resting = rows.filter(rests).length;
  const widest = Math.max(1, ...rows.map(worked));
  const states = { at_rest: "waits for work", stuck: "stuck", cannot_tell: "stuck, or waits for work" };
  const note = make("p", { class: "quiet" });
  const say = () => { note.textContent = resting && !withIdle ? `${counted(resting, "thread")} that waited nearly all the time, or did less than a hundredth of the work, ${resting === 1 ? "is" : "are"} folded away.` : ""; };
  reactions.push(say);
  say();
  folded("threads", "Threads", `${count(rows.length - resting)} with work, ${count(resting)} idle or resting`,
    "Time in calls and off the CPU between them, and computing between them if that is known, without idle waits.", partsLegend([COMPUTING, ...PARTS]), unfiltered("thread"), byName(rows),
    table([
      ["thread", (t) => threadName(t.comm, t.tid, t.pid === t.tid), "long", (t) => t.comm], ["process", (t) => String(t.pid), "n", (t) => t.pid], ["", (t) => bars(t, widest), "bars"],
      ["time", (t) => time(worked(t)), "n", worked], ["calls", (t) => count(t.calls), "n", (t) => t.calls], ["CPU in calls", (t) => time(t.budget.cpu_ns), "n", (t) => t.budget.cpu_ns],
      ["between calls", (t) => t.user_cpu_ns === null ? "not known" : time(t.user_cpu_ns), "n", (t) => t.user_cpu_ns || 0],
      ["blocked", (t) => time(Math.max(0, t.budget.blocked_ns - leftOut(t))), "n", (t) => t.budget.blocked_ns - leftOut(t)],
      ["waits for a CPU", (t) => time(t.budget.runqueue_ns + t.budget.preempted_ns), "n", (t) => t.budget.runqueue_ns + t.budget.preempted_ns],
      ["idle", (t) => time(leftOut(t)), "n", leftOut], ["state", (t) => states[t.rest] || ""]],
    rows, { caption: "Threads by time", pick: (t) => choose({ thread: t.comm }),
      shows: (t) => (withIdle || !rests(t)) && (chosen.thread === null || t.comm === chosen.thread) }),
    note, data.threads_left_out ? make("p", { class: "quiet" }, `${count(data.threads_left_out)} more threads took less.`) : null);
}
