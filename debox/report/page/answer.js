// SPDX-License-Identifier: MIT OR Apache-2.0
// The answer: one sentence, one bar of the time by cause, and the longest waits.

function heading() {
  const named = recording.processes.map((one) => shortCommand(one.title || one.command.join(" "), 100)).filter(Boolean);
  const running = named.length > 1 ? `${named[0]} and ${count(named.length - 1)} more ${named.length === 2 ? "process" : "processes"}` : named[0];
  const title = commands.length ? commands.join("; ") : running || "a running process";
  document.getElementById("title").textContent = title.length > 160 ? title.slice(0, 160) + " …" : title;
  document.title = "DeBox report: " + title.slice(0, 80);
  const begin = new Date(recording.begin_ns / 1e6);
  document.getElementById("facts").textContent =
    `${count(recording.calls)} calls of ${count(recording.threads)} threads in ${time(recording.span_ns)}, ` +
    `from ${isNaN(begin) ? "an unknown time" : begin.toISOString().replace("T", " ").slice(0, 19) + " UTC"}; ` +
    `${recording.hosts.join(", ")}, Linux ${recording.kernels.join(", ")}, ${recording.cpus} CPUs.`;
}

// The causes of the time that was not idle. Small ones are one part.
function causes() {
  const sums = new Map();
  for (const share of data.active.shares) {
    const known = sums.get(share.cause);
    if (known) known.ns += share.ns;
    else sums.set(share.cause, { cause: share.cause, tint: tintOf(share.cause, share.class), ns: share.ns });
  }
  const all = [...sums.values()].sort((a, b) => b.ns - a.ns);
  const large = all.filter((one, at) => at < 8 && one.ns >= data.active.of_ns * 0.005);
  const rest = all.slice(large.length);
  const ns = rest.reduce((sum, one) => sum + one.ns, 0);
  return ns > 0 ? [...large, { cause: null, name: `${rest.length} more`, tint: "--c6", ns }] : large;
}

function causeBar() {
  const { of_ns, idle_ns } = data.active;
  const parts = causes();
  const idle = { cause: null, name: "idle or waiting for work", tint: "--idle", ns: idle_ns };
  const name = (one) => one.name || causeName(one.cause);
  const place = make("div", { class: "answer-bar" });
  const list = make("ul", { class: "causes", "aria-label": "Causes" });
  // The items stay the same elements, so the button that was pressed keeps the focus.
  const items = new Map([...parts, idle].map((one) => {
    const share = make("b", {});
    const content = [swatch(one.tint), share, ` ${name(one)} `, make("span", { class: "quiet" }, time(one.ns))];
    const button = one.cause === null ? null
      : make("button", { type: "button", title: "Show only this cause", onclick: () => choose({ cause: one.cause }) }, content);
    return [one, { share, button, item: make("li", {}, button || content) }];
  }));
  const draw = () => {
    const whole = of_ns + (withIdle ? idle_ns : 0);
    const shown = withIdle && idle_ns > 0 ? [...parts, idle] : parts;
    place.replaceChildren(make("div", { class: "stack", role: "img",
      "aria-label": `Of ${time(whole)}: ` + shown.map((one) => `${name(one)} ${percent(one.ns / whole)}`).join(", ") },
      shown.map((one) => make("i", { title: `${name(one)}: ${time(one.ns)}, ${percent(one.ns / whole)}`,
        class: chosen.cause !== null && chosen.cause !== one.cause ? "dim" : null,
        style: `width: ${100 * one.ns / whole}%; background: var(${one.tint})` }))));
    arrange(list, shown.map((one) => {
      const { share, button, item } = items.get(one);
      share.textContent = percent(one.ns / whole);
      if (button) button.setAttribute("aria-pressed", String(chosen.cause === one.cause));
      return item;
    }));
  };
  reactions.push(draw);
  draw();
  return [place, list];
}

// Waits for events that another process of the same program sent: processes of PostgreSQL, which wait for their clients
// in epoll, wait there for locks of the database, too. Their events come from no descriptor that has a name.
function processWaits() {
  const isOfSeveral = (comm) => data.threads.filter((thread) => thread.comm === comm && thread.pid === thread.tid).length > 1;
  const isForClients = (wait, one) => one.comm === wait.comm && one.call === wait.call && (one.resources > 0 || /^(unix|tcp)/.test(one.resource || ""));
  const found = data.waits.filter((wait) => wait.class === "idle" && wait.is_main && wait.resource === null && !wait.resources &&
    (wait.waker + " (").startsWith(`task ${wait.comm} (`) && isOfSeveral(wait.comm) && data.waits.some((one) => isForClients(wait, one)));
  const least = data.active ? data.active.of_ns * 0.01 : 0;
  return found.filter((wait) => wait.blocked_ns >= least).map((wait) => ({ between: wait, ns: wait.blocked_ns }));
}

function processCard({ between: wait }) {
  return card(`Waiting for another process of ${wait.comm}`,
    [make("b", {}, time(wait.blocked_ns)), ` ${counted(wait.count, "time")}, longest ${time(wait.longest_ns)}; counted as idle`],
    [fact("Waiting", wait.many_threads ? `${wait.comm} (several processes)` : threadName(wait.comm, wait.tid, true)),
      fact("Longest", wait.many_threads ? threadName(wait.comm, wait.tid, true) : ""),
      fact("For", `an event in ${wait.call} from a process of the same program, such as the end of a lock of its own`),
      fact("Held up by", heldUpWords(wait)), fact("Longest ended by", wakerName(wait.waker)), fact("Called from", callerName(wait.caller))],
    [], null);
}

// Waits of one kind, from one place, for one owner: threads of a pool are one card.
function worstWaits() {
  const groups = new Map();
  const told = new Set(data.active ? data.active.shares.map((share) => share.cause) : []);
  data.waits.forEach((wait) => {
    if (wait.class === "idle" || wait.is_rest || !told.has(wait.label)) return;
    const key = [wait.call, wait.label, wait.caller, wait.owner_comm].join("\n");
    const group = groups.get(key) || { call: wait.call, cause: wait.label, caller: wait.caller, ns: 0, count: 0, longest: wait, open: 0, rows: [] };
    group.ns += wait.blocked_ns;
    group.count += wait.count;
    group.open += wait.in_flight;
    group.rows.push(wait);
    if (wait.longest_ns > group.longest.longest_ns) group.longest = wait;
    groups.set(key, group);
  });
  const all = [...groups.values()];
  const cpu = data.active && data.active.shares.find((share) => share.cause === "waiting for a CPU");
  if (cpu) all.push({ cause: cpu.cause, ns: cpu.ns, owner: cpu.owner });
  const least = data.active ? data.active.of_ns * 0.01 : 0;
  return [...all.filter((one) => one.ns >= least && one.ns > 0), ...processWaits()].sort((a, b) => b.ns - a.ns).slice(0, 3);
}

const fact = (name, value) => value ? [make("dt", {}, name), make("dd", {}, value)] : [];

function card(title, size, facts, stack, pick) {
  return make("article", { class: "card" }, make("h4", {}, title), size ? make("p", { class: "size" }, size) : null,
    make("dl", {}, facts),
    stack.length ? make("details", {}, make("summary", {}, `Stack of ${stack.length} functions`), make("pre", {}, stack.join("\n"))) : null,
    pick ? make("button", { type: "button", class: "only", onclick: () => choose(pick) }, "Show only this") : null);
}

function sleepCard(group) {
  const wait = group.longest;
  const threads = [...new Set(group.rows.map((row) => row.comm))].join(", ");
  const several = group.rows.length > 1 || wait.many_threads;
  const resources = new Set(group.rows.map((row) => row.resource));
  const place = group.call === "(user)" ? "between calls" : `in ${group.call}`;
  return card(group.cause === group.call ? `Waiting in ${group.call}` : `${capital(group.cause)} ${place}`,
    [make("b", {}, time(group.ns)), ` ${percent(group.ns / data.active.of_ns)}; ${count(group.count)} ${group.count === 1 ? "time" : "times"}, longest ${time(wait.longest_ns)}` +
      (group.open ? `; ${count(group.open)} had not ended` : "")],
    [fact("Waiting", several ? `${threads} (several threads)` : threadName(wait.comm, wait.tid, wait.is_main) + (wait.is_main ? ", main thread" : "")),
      fact("For", resources.size > 1 ? `${resources.size} different ones, such as ${wait.resource}` : wait.resource),
      fact("Held by", ownerWords(wait) || (wait.class === "lock" ? "not known" : "")), fact("Held up by", heldUpWords(...group.rows)),
      fact(wait.count > 1 ? "Longest ended by" : "Ended by", wait.in_flight && wait.count === wait.in_flight ? "" : wakerName(wait.waker)),
      fact("Called from", callerName(group.caller))],
    longestStack(group.call, group.cause, group.caller), { call: group.call, cause: group.cause });
}

function cpuCard(one) {
  const off = (call) => call.budget.runqueue_ns + call.budget.preempted_ns;
  const most = [...data.calls, ...(data.between_calls ? [data.between_calls] : [])].sort((a, b) => off(b) - off(a))[0];
  const owners = data.cpu_waits ? data.cpu_waits.owners.slice(0, 3).map((owner) => `${cpuOwnerWords(owner)} ${time(owner.ns)}`).join("; ") : "";
  return card("Waiting for a CPU", [make("b", {}, time(one.ns)), ` ${percent(one.ns / data.active.of_ns)}; ${recording.cpus} CPUs`],
    [fact("Had the CPU", one.owner ? `${one.owner}${owners ? `: ${owners}` : ""}` : owners || "not known"),
      fact("Most of it", most && off(most) > 0 ? `${most.name === "(user)" ? "between calls" : `in ${most.name}`}, ${time(off(most))}` : "")],
    [], { cause: one.cause });
}

function deadlockCard(wait) {
  const open = data.in_flight.find((call) => call.tid === wait.tid);
  return card(`${wait.comm} (${wait.tid}) waits for ${wait.lock} ${wait.name || ""}`, open ? [make("b", {}, time(open.budget.wall_ns)), " and had not got it"] : null,
    [fact("Held by", wait.holder), fact("Called from", callerName(wait.caller))], wait.frames, { thread: wait.comm });
}

// What the answer is about, and what it leaves out.
function told(aside) {
  const { shares, of_ns } = data.active;
  const counted = new Set(shares.map((share) => share.cause));
  const children = data.matrix.labels.filter((label) => CHILDREN.includes(label.label) && !counted.has(label.label));
  const waited = children.reduce((sum, label) => sum + label.blocked_ns, 0);
  const other = data.headline_text[0];
  const cpu = data.account ? data.account.user_cpu_ns + data.account.kernel_cpu_ns : 0;
  return [`This is about ${time(of_ns)} in which threads worked or were held up${data.headline_is_of_run ? "" : ", in calls only"}` +
      (cpu ? `; the CPU time is ${time(cpu)}.` : "."),
    aside > 0 ? `${time(aside)} more were idle waits, or looked like waits for work; ${withIdle ? "they are the grey part" : "they are folded away"}.` : "",
    waited > 0 ? `Waits of parents for their children (${time(waited)}) are not counted: what the children did is.` : "",
    aside > 0 && other && other !== data.active_text[0] ? `With idle waits: ${other}.` : ""].filter(Boolean).join(" ");
}

function answer() {
  const dead = data.deadlocks[0];
  const finding = data.findings.find((one) => one.kind === "deadlock");
  const loop = dead ? null : data.loop_text;
  const between = dead ? [] : processWaits().filter((one) => one.ns > Math.max(0, ...causes().map((cause) => cause.ns)));
  const of = data.active_text.length ? capital(data.active_text[0]) + "." : "";
  const says = dead && finding ? finding.text.split(": ").slice(0, 2).join(": ") + "."
    : loop ? capital(loop) + "."
    : of ? of
    : data.headline_text.length ? capital(data.headline_text[0]) + "." : "The recording shows no time of any thread.";
  const aside = data.active ? data.active.idle_ns : 0;
  const cards = dead
    ? dead.waits.slice(0, 3).map((wait, at) => { const next = dead.waits[(at + 1) % dead.waits.length]; return deadlockCard({ ...wait, holder: `${next.comm} (${next.tid})` }); })
    : worstWaits().map((one) => one.between ? processCard(one) : one.call ? sleepCard(one) : cpuCard(one));
  const ofLoops = dead ? [] : loopCards();
  const longest = cards.length ? [make("h3", { class: "cards-of" }, dead ? "Who waits for whom" : cards.length > 1 ? "The longest waits" : "The longest wait"), make("div", { class: "cards" }, cards)]
    : loop ? [] : make("p", { class: "quiet" }, "No wait took a hundredth of that time.");
  const blocked = ofLoops.length ? [make("h3", { class: "cards-of" }, ofLoops.length > 1 ? "Blocked event loops" : "A blocked event loop"), make("div", { class: "cards" }, ofLoops)] : [];
  const about = make("p", { class: "quiet" });
  const tell = () => { about.textContent = data.active ? told(aside) : ""; };
  reactions.push(tell);
  tell();
  section("answer", "Where the time went", null,
    make("p", { class: "says" }, says),
    loop && of ? make("p", {}, "Of all threads: " + data.active_text[0] + ".") : null,
    between.map(({ between: wait, ns }) => make("p", {}, `Beside it, ${wait.comm} waited ${time(ns)} for other processes of the same program.`)),
    data.active ? about : null,
    data.active ? causeBar() : null,
    loop ? [blocked, longest] : [longest, blocked]);
}

function findings() {
  const rows = data.findings.map((finding) => make("li", {}, finding.text + " ", make("a", { href: "#" + finding.evidence, "aria-label": `Show the evidence: ${finding.evidence}` }, "Show")));
  const first = rows.slice(0, 5);
  const rest = rows.slice(5);
  const more = make("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
    const open = more.getAttribute("aria-expanded") === "false";
    more.setAttribute("aria-expanded", String(open));
    more.textContent = open ? "Show 5 findings" : `Show all ${rows.length} findings`;
    rest.forEach((row) => { row.hidden = !open; });
  } }, `Show all ${rows.length} findings`);
  rest.forEach((row) => { row.hidden = true; });
  section("findings", "Findings", null, make("ol", { class: "findings" }, rows), rest.length ? more : null);
  section("missing", "What is missing or uncertain", null, make("ul", { class: "caveats" }, data.caveats.map((text) => make("li", {}, text))));
}
