// The report, section by section.

const recording = data.recording;
const PARTS = [
  ["on the CPU", "--cpu", (b) => b.cpu_ns], ["interrupts", "--irq", (b) => b.irq_ns || 0],
  ["waiting for a CPU", "--runqueue", (b) => b.runqueue_ns], ["preempted", "--preempted", (b) => b.preempted_ns],
  ["blocked", "--disk", (b) => b.blocked_ns - b.idle_ns], ["blocked: idle", "--idle", (b) => b.idle_ns],
];
const CLASS_COLOURS = {
  "cpu in calls": "--cpu", "interrupts": "--irq", "waiting for a CPU": "--runqueue", "preempted": "--preempted",
  "blocked: disk": "--disk", "blocked: lock": "--lock", "blocked: memory": "--memory",
  "blocked: network": "--network", "blocked: process": "--process", "blocked: cpu": "--c7",
  "blocked: other": "--other", "blocked: not listed": "--c6", "blocked: idle": "--idle",
};

const active = (budget) => budget.wall_ns - budget.idle_ns;

function heading() {
  const commands = recording.commands.map((words) => words.join(" ")).filter(Boolean);
  const title = commands.length ? commands.join("; ") : "a running process";
  document.getElementById("title").textContent = title.length > 160 ? title.slice(0, 160) + " …" : title;
  document.title = "DeBox report: " + title.slice(0, 80);
  const begin = new Date(recording.begin_ns / 1e6);
  document.getElementById("facts").textContent =
    `${count(recording.calls)} calls of ${count(recording.threads)} threads in ${time(recording.span_ns)}, ` +
    `from ${isNaN(begin) ? "an unknown time" : begin.toISOString().replace("T", " ").slice(0, 19) + " UTC"}; ` +
    `${recording.hosts.join(", ")}, Linux ${recording.kernels.join(", ")}, ${recording.cpus} CPUs. ` +
    `In calls: ${time(data.totals.wall_ns)}, of which ${time(data.totals.idle_ns)} idle waits.` +
    (data.account ? ` Between calls: ${time(data.account.user_cpu_ns)} of CPU time.` : "");
}

function headline() {
  if (!data.headline_text.length) return;
  section("headline", "Where the time went", null,
    make("div", {}, data.headline_text.map((text, at) =>
      make("p", at ? {} : { class: "headline" }, text[0].toUpperCase() + text.slice(1) + "."))));
}

function findings() {
  section("findings", "Findings", null,
    make("ol", { class: "findings" }, data.findings.map((finding) => make("li", {}, finding.text + " ",
      make("a", { href: "#" + finding.evidence }, "Show")))));
  section("missing", "What is missing or uncertain", null,
    make("ul", { class: "caveats" }, data.caveats.map((text) => make("li", {}, text))));
}

function against() {
  const comparison = data.against;
  if (!comparison) return;
  const change = (d) => {
    if (!d.change_percent) return "too few calls";
    const [low, high] = d.change_percent.map((v) => (v > 0 ? "+" : "") + v.toFixed(Math.abs(v) < 10 ? 1 : 0) + " %");
    if (d.verdict === "none") return `no difference that the data show (${low} to ${high})`;
    return make("span", { class: "mark" }, `${d.verdict} (${low} to ${high})`);
  };
  const pair = (d) => `${time(d.base_ns)} → ${time(d.ns)}`;
  section("against", "Against another run",
    `The other run is ${comparison.base.join(", ")}: ${count(comparison.base_calls)} calls in ` +
    `${time(comparison.base_span_ns)}. In brackets stands the interval in which the change is, at 99 % ` +
    "(block bootstrap). It says what these two runs show; how much runs differ by themselves, two cannot tell.",
    table([
      ["call", (c) => c.call], ["calls", (c) => `${count(c.base_count)} → ${count(c.count)}`, "n"],
      ["median", (c) => pair(c.median), "n"], ["", (c) => change(c.median)],
      ["99 %", (c) => pair(c.p99), "n"], ["", (c) => change(c.p99)],
      ["total", (c) => pair(c.total), "n"], ["", (c) => change(c.total)],
    ], comparison.calls),
    comparison.base_caveats.length ? later("What is missing in the other run", () =>
      make("ul", { class: "caveats" }, comparison.base_caveats.map((text) => make("li", {}, text)))) : null);
}

function bars(budget, widest) {
  const parts = PARTS.filter(([name]) => name !== "blocked: idle");
  return make("div", { class: "stack", role: "img", "aria-label": parts.map(([n, , of]) => `${n} ${time(of(budget))}`).join(", ") },
    parts.map(([name, tint, of]) => {
      const part = of(budget);
      return part > 0 ? make("i", { title: `${name}: ${time(part)}`, style: `width: ${100 * part / widest}%; background: var(${tint})` }) : null;
    }));
}

function calls() {
  const rows = data.calls.slice(0, 40);
  const widest = Math.max(1, ...rows.map((call) => active(call.budget)));
  section("calls", "Where the time went, by call",
    "Each bar is the wall time of all calls of a name without idle waits, in the parts of its budget. " +
    "The longest bar is where there is most to gain; its colour says what kind of gain.",
    make("div", { class: "legend" }, PARTS.slice(0, 5).map(([name, tint]) => make("label", {},
      make("span", { class: "swatch", style: `background: var(${tint})` }), name))),
    table([
      ["call", (c) => c.name], ["", (c) => bars(c.budget, widest), "bars"],
      ["calls", (c) => count(c.count), "n"], ["wall", (c) => time(c.budget.wall_ns), "n"],
      ["CPU", (c) => time(c.budget.cpu_ns), "n"], ["blocked", (c) => time(c.budget.blocked_ns), "n"],
      ["of it idle", (c) => time(c.budget.idle_ns), "n"],
      ["waits for CPU", (c) => time(c.budget.runqueue_ns + c.budget.preempted_ns), "n"],
      ["median", (c) => time(c.median_ns), "n"], ["99 %", (c) => time(c.p99_ns), "n"],
      ["longest", (c) => time(c.max_ns), "n"], ["slept", (c) => count(c.slept), "n"],
      ["faults", (c) => count(c.faults_minor + c.faults_major), "n"],
      ["errors", (c) => c.errors.slice(0, 3).map(([e, n]) => `${e} ${count(n)}`).join(", ")],
    ], rows, { id: (c) => anchor("call", c.name) }),
    data.calls.length > rows.length ? make("p", { class: "quiet" }, `${data.calls.length - rows.length} more calls took less.`) : null,
    data.between_calls ? make("p", {}, `Between calls, threads were off the CPU ${count(data.between_calls.count)} times: ` +
      `${time(data.between_calls.budget.blocked_ns)} blocked, ${time(data.between_calls.budget.runqueue_ns)} waiting for a CPU, ` +
      `${time(data.between_calls.budget.preempted_ns)} preempted.`) : null);
}

// The views of the plot over time: all calls by part, each call by part, and the calls compared.
function overTimeViews() {
  const { bin_ns, parts, by_call } = data.timeline;
  const threads = (ns) => ns.map((ns) => ns / bin_ns);
  const byPart = (parts) => {
    const busy = parts.some((part) => part.name !== "blocked: idle");
    return parts.map((part) => ({ name: part.name, colour: CLASS_COLOURS[part.name] || "--other",
      values: threads(part.ns), shown: !busy || part.name !== "blocked: idle" }));
  };
  const views = [["all calls together", byPart(parts)]];
  if (!by_call.length) return views;
  let next = 0;
  const active = by_call.map((call) => {
    const ns = parts[0].ns.map((_, bin) => call.parts.reduce((sum, part) =>
      part.name === "blocked: idle" ? sum : sum + part.ns[bin], 0));
    const tint = call.call.startsWith("(") ? "--other" : LINES[next++ % LINES.length];
    return { name: call.call, colour: call.call === "(user)" ? "--idle" : tint, values: threads(ns), shown: true };
  }).filter((series) => series.values.some((value) => value > 0));
  if (active.length > 1) views.push(["the calls beside each other, without idle waits", active]);
  return views.concat(by_call.map((call) => [call.call === "(user)" ? "between calls" : call.call, byPart(call.parts)]));
}

function overTime() {
  const { bin_ns, parts } = data.timeline;
  if (!parts.length) return;
  const xs = parts[0].ns.map((_, bin) => bin * bin_ns / 1e9);
  const views = overTimeViews();
  let series = views[0][1];
  const out = make("div", { class: "readout", "aria-live": "off" });
  const read = (bin) => {
    out.textContent = bin === null || bin === undefined ? "" : `at ${time(xs[bin] * 1e9)}: ` +
      series.filter((s) => s.shown && s.values[bin] > 0).map((s) => `${s.name} ${s.values[bin].toFixed(2)}`).join(", ");
  };
  const place = plot((place, width) => stacked(place, width, xs, series.filter((s) => s.shown),
    [axis("seconds since the first record", null, { size: 34 }), axis("threads", null, { size: 56 })], read));
  const boxes = make("div", {});
  const rows = make("div", {});
  const show = (view) => {
    series = views[view][1];
    const shown = series.map((s) => s.shown);
    boxes.replaceChildren(legend(series.map((s) => s.name), series.map((s) => s.colour), shown, () => {
      series.forEach((s, i) => { s.shown = shown[i]; });
      redraw(place);
    }));
    rows.replaceChildren(later("As a table", () => table(
      [["from", (bin) => time(bin * bin_ns), "n"],
        ...series.map((s) => [s.name, (bin) => time(Math.round(s.values[bin] * bin_ns)), "n"])],
      xs.map((_, bin) => bin))));
    out.textContent = "";
  };
  const choice = make("select", { id: "over-time-of", onchange: () => { show(Number(choice.value)); redraw(place); } },
    views.map(([name], index) => make("option", { value: index }, name)));
  show(0);
  section("over-time", "What the threads did over time",
    "How many threads on average were in each state, in bins of " + time(bin_ns) + ". A wide band that is " +
    "no idle wait is time that somebody waited for; idle waits can be added with their box. Time on the CPU outside " +
    "of calls is not in a history.",
    make("p", {}, make("label", { for: "over-time-of" }, "Show "), choice), boxes, place, out, rows);
}

function matrix() {
  const { labels, calls, cells, labels_left_out, calls_left_out } = data.matrix;
  if (!labels.length) return;
  const most = Math.max(1, ...cells.flat().map((cell) => cell.blocked_ns));
  const head = make("tr", {}, make("th", {}, "call"), labels.map((label) => make("th", { scope: "col" },
    label.label, make("small", {}, `${label.class}, ${count(label.sleeps)}`), make("small", {}, time(label.blocked_ns)))));
  const body = calls.map((call, row) => make("tr", {}, make("th", { scope: "row" }, call), cells[row].map((cell) => {
    if (!cell.sleeps) return make("td", {}, "");
    const shade = 0.06 + 0.5 * Math.max(0, 1 + Math.log10(cell.blocked_ns / most + 1e-9) / 5);
    return make("td", { style: `background: rgba(var(--heat), ${shade.toFixed(2)})`,
      title: `${call}, ${labels[cells[row].indexOf(cell)].label}: ${count(cell.sleeps)} sleeps of ${count(cell.calls)} calls, ${time(cell.blocked_ns)}` },
      count(cell.sleeps), make("small", {}, time(cell.blocked_ns)));
  })));
  const more = labels_left_out + calls_left_out;
  section("matrix", "What it waited for, by call",
    "Labels across, calls down: how often calls of a name slept for that reason, and how long. Under each " +
    "label stand its class, all its sleeps and their time. The darker, the longer; a column with one dark " +
    "cell is one call's trouble, a column with many is a resource's.",
    make("div", { class: "scroll" }, make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, body))),
    more ? make("p", { class: "quiet" }, `${labels_left_out} labels and ${calls_left_out} calls with shorter waits are left out.`) : null);
}

function ownerWords(wait) {
  if (!wait.owner_certainty) return "";
  if (!wait.owner_comm) return "not known";
  const who = wait.many_owners || wait.owner_tid === null ? `${wait.owner_comm} (several)` : `${wait.owner_comm} (${wait.owner_tid})`;
  return [who, wait.owner_certainty === "exact" ? null : wait.owner_certainty, wait.owner_doing].filter(Boolean).join(", ");
}

function waits() {
  if (!data.waits.length) return;
  section("waits", "Who waited for what, and for whom",
    "Waits of the same threads, in the same call from the same place, for the same thing are one row. " +
    "Longest first, idle waits last.",
    table([
      ["thread", (w) => (w.is_main ? "main of " : "") + w.comm + (w.many_threads ? " (several)" : ` (${w.tid})`)],
      ["call", (w) => w.call], ["waited for", (w) => w.label + (w.resource ? `: ${w.resource}` : w.resources > 1 ? `: ${count(w.resources)} different ones` : ""), "long"],
      ["class", (w) => w.class], ["times", (w) => count(w.count), "n"], ["time", (w) => time(w.blocked_ns), "n"],
      ["longest", (w) => time(w.longest_ns), "n"], ["called from", (w) => w.caller || "", "long"],
      ["held by", ownerWords, "long"], ["longest ended by", (w) => w.waker],
    ], data.waits, { id: (w, index) => `wait-${index}` }),
    data.waits_left_out ? make("p", { class: "quiet" }, `${count(data.waits_left_out)} more kinds of waits were shorter.`) : null);
}

// Only the largest owner of each call is known.
function cpuWaits() {
  const waits = data.cpu_waits;
  if (!waits || !waits.waited_ns) return;
  const who = (owner) => {
    const process = `${owner.comm} (${owner.pid})`;
    switch (owner.kind) {
      case "task": return process;
      case "own": return `${process}, the waiting process itself`;
      case "kernel": return `${process} of the kernel`;
      case "idle": return "no task: the CPU was idle";
      case "quota": return `no task: ${waits.group ? `the control group ${waits.group}` : "a control group"} had used up its quota`;
      case "hidden": return "tasks of other users";
      case "stolen": return "no task: the hypervisor had the CPU";
      case "many": return "further processes";
      default: return "not known";
    }
  };
  const quota = { kind: "quota", ns: waits.throttled_ns, calls: waits.throttled_calls, longest_ns: waits.throttled_longest_ns };
  const others = { kind: "many", ns: waits.others_ns, calls: null, longest_ns: null };
  const rows = [quota, ...waits.owners, others].filter((owner) => owner.ns > 0).sort((a, b) => b.ns - a.ns);
  section("cpu-waits", "Who had the CPU while threads waited for one",
    "In calls and between them. Of each call the largest owner is known; the others of the same call are further processes.",
    table([
      ["who", who, "long"], ["time", (owner) => time(owner.ns), "n"],
      ["calls", (owner) => (owner.calls === null ? "" : count(owner.calls)), "n"],
      ["longest", (owner) => (owner.longest_ns === null ? "" : time(owner.longest_ns)), "n"],
    ], rows));
}

// Stacks of samples as a tree, the outermost function first.
function sampledTree(stacks) {
  const root = { name: "all", kind: "all", value: 0, children: [], at: new Map() };
  for (const stack of stacks) {
    const frames = stack.frames.length ? [...stack.frames].reverse() : ["(no stack)"];
    const path = frames.map((name) => ["program", name]);
    if (stack.syscall !== "(user)") path.push(["call", stack.syscall]);
    root.value += stack.samples;
    let node = root;
    for (const [kind, name] of path) {
      // A function is one frame, regardless of the line.
      const shown = kind === "program" ? name.replace(/ \([^()]*:\d+\)$/, "") : name;
      const key = kind + shown;
      if (!node.at.has(key)) {
        const child = { name: shown, kind, value: 0, children: [], at: new Map() };
        node.at.set(key, child);
        node.children.push(child);
      }
      node = node.at.get(key);
      node.value += stack.samples;
    }
  }
  return root;
}

function onCpu() {
  const samples = data.samples;
  if (!samples || !samples.total) return;
  const root = sampledTree(samples.stacks);
  const out = make("div", { class: "readout" });
  let chart = null;
  const words = (n) => `${count(n)} samples, ${percent(n / Math.max(samples.total, 1))}`;
  const place = plot((place, width) => {
    chart = flamegraph.default().width(width).cellHeight(20).transitionDuration(0).minFrameSize(1).inverted(true)
      .selfValue(false).sort((a, b) => b.value - a.value)
      .setColorMapper((d) => d.highlight ? colour("--c4") : colour(d.data.kind === "call" ? "--call" : "--program"))
      .setLabelHandler((d) => `${d.data.name}: ${words(d.value)}`)
      .setDetailsHandler((text) => { out.textContent = text || ""; })
      .setSearchHandler((results, sum) => { out.textContent = `${results.length} frames match: ${words(sum)}`; });
    d3.select(place).datum(root).call(chart);
    return () => chart.destroy();
  });
  const search = make("input", { type: "search", placeholder: "Search a function", "aria-label": "Search in the on-CPU flame graph",
    oninput: () => { if (search.value) chart.search(search.value); else { chart.clear(); out.textContent = ""; } } });
  const rate = Math.round(1e9 / Math.max(samples.period_ns, 1));
  const left = [[samples.in_further_stacks, "have stacks that are not in the graph"], [samples.in_interrupts, "were in interrupts and are left out"], [samples.lost, "were lost"]]
    .filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
  section("on-cpu", "On-CPU flame graph",
    `Where the threads computed: ${count(samples.total)} samples, ${rate} in a second of each CPU. From the top: the program's stack, ` +
    "and the call if the sample was inside one. A frame is as wide as the number of samples below it. Click a frame to look at it alone.",
    make("div", { class: "search" }, search, make("button", { type: "button", onclick: () => { search.value = ""; chart.clear(); chart.resetZoom(); } }, "Whole graph")),
    place, out,
    left.length ? make("p", { class: "quiet" }, `Of the samples ${left.join("; ")}.`) : null,
    table([
      ["function", (f) => f.function, "long"], ["most at", (f) => f.place || ""], ["samples", (f) => count(f.samples), "n"],
      ["share", (f) => percent(f.samples / samples.total), "n"], ["in calls", (f) => count(f.in_calls), "n"], ["mostly inside", (f) => f.inside || ""],
    ], samples.functions.slice(0, 20)));
}

function flame() {
  const { names, roots, pruned_frames } = data.flame;
  if (!roots.length) return;
  const idle = new Set(data.matrix.labels.filter((label) => label.class === "idle").map((label) => label.label));
  let withIdle = false, chart = null;
  // Without idle waits, a frame is as wide as the remaining frames below it.
  const tree = (frame, depth) => {
    const name = names[frame.name];
    if (!withIdle && frame.kind === "label" && idle.has(name)) return null;
    const children = frame.children.map((child) => tree(child, depth + 1)).filter(Boolean);
    const gone = withIdle ? 0 : frame.children.reduce((sum, child) => sum + removed(child), 0);
    const value = frame.blocked_ns - gone;
    return value > 0 ? { name, value, kind: frame.kind, children } : null;
  };
  const removed = (frame) => frame.kind === "label" && idle.has(names[frame.name]) ? frame.blocked_ns
    : frame.children.reduce((sum, child) => sum + removed(child), 0);
  const whole = () => {
    const children = roots.map((root) => tree(root, 0)).filter(Boolean);
    return { name: "all", kind: "all", value: children.reduce((sum, child) => sum + child.value, 0), children };
  };
  if (whole().value === 0) withIdle = true;
  const place = plot((place, width) => {
    const root = whole();
    chart = flamegraph.default().width(width).cellHeight(20).transitionDuration(0).minFrameSize(1).inverted(true)
      .selfValue(false).sort((a, b) => b.value - a.value)
      .setColorMapper((d) => d.highlight ? colour("--c4") : colour({ program: "--program", call: "--call", label: "--label", kernel: "--kernel" }[d.data.kind] || "--program"))
      .setLabelHandler((d) => `${d.data.name}: ${time(d.value)}, ${percent(d.value / Math.max(root.value, 1))}`)
      .setDetailsHandler((text) => { out.textContent = text || ""; })
      .setSearchHandler((results, sum, total) => { out.textContent = `${results.length} frames match: ${time(sum)}, ${percent(sum / Math.max(total, 1))}`; });
    d3.select(place).datum(root).call(chart);
    return () => chart.destroy();
  });
  const out = make("div", { class: "readout" });
  const search = make("input", { type: "search", placeholder: "Search a function", "aria-label": "Search in the flame graph",
    oninput: () => { if (search.value) chart.search(search.value); else { chart.clear(); out.textContent = ""; } } });
  const box = make("input", { type: "checkbox", onchange: () => { withIdle = box.checked; redraw(place); } });
  box.checked = withIdle;
  const rows = [];
  const walk = (frame, path) => {
    const here = [...path, names[frame.name]];
    const inside = frame.children.reduce((sum, child) => sum + child.blocked_ns, 0);
    if (frame.blocked_ns > inside) rows.push([here, frame.blocked_ns - inside, frame.sleeps]);
    frame.children.forEach((child) => walk(child, here));
  };
  section("flame", "Off-CPU flame graph",
    "From the top: the program's stack, the call, the label of the wait, the kernel's stack. A frame is as wide " +
    "as the time that was slept below it. Click a frame to look at it alone.",
    make("div", { class: "legend" }, [["program", "--program"], ["call", "--call"], ["label", "--label"], ["kernel", "--kernel"]]
      .map(([name, tint]) => make("label", {}, make("span", { class: "swatch", style: `background: var(${tint})` }), name))),
    make("div", { class: "search" }, search, make("button", { type: "button", onclick: () => { search.value = ""; chart.clear(); chart.resetZoom(); } }, "Whole graph"),
      make("label", {}, box, " with idle waits")),
    place, out,
    pruned_frames ? make("p", { class: "quiet" }, `${count(pruned_frames)} frames that are too small to be seen are left out; the frames above have their time.`) : null,
    later("As a table", () => {
      if (!rows.length) roots.forEach((root) => walk(root, []));
      rows.sort((a, b) => b[1] - a[1]);
      return table([["stack", (r) => r[0].join(" ; "), "long"], ["slept", (r) => time(r[1]), "n"]], rows.slice(0, 200));
    }));
}

function latencies() {
  const calls = data.calls.filter((call) => call.cdf.length > 0);
  if (!calls.length) return;
  const tints = calls.map((_, index) => LINES[index % LINES.length]);
  const shown = calls.map((_, index) => index < 6);
  const dash = (index) => index < 8 ? undefined : [6, 4];
  const at = (call, ns) => { let part = 0; for (const [value, below] of call.cdf) { if (value > ns) break; part = below; } return part; };
  const out = make("div", { class: "readout" });
  const place = plot((place, width) => distributions(place, width,
    calls.map((call, i) => ({ colour: tints[i], dash: dash(i), points: call.cdf, on: shown[i] })).filter((one) => one.on),
    (ns) => { out.textContent = ns === null ? "" : `not longer than ${time(Math.round(ns))}: ` + calls.filter((_, i) => shown[i]).map((call) => `${call.name} ${percent(at(call, ns))}`).join(", "); }));
  section("latency", "How long calls took",
    "For each call the part of its invocations that took no longer than so. A step to the right far up is a " +
    "tail: a few calls that take much longer than most.",
    legend(calls.map((call) => call.name), tints, shown, () => redraw(place)), place, out,
    later("As a table", () => table([
      ["call", (c) => c.name], ["calls", (c) => count(c.count), "n"], ["median", (c) => time(c.median_ns), "n"],
      ["90 %", (c) => time(c.p90_ns), "n"], ["99 %", (c) => time(c.p99_ns), "n"], ["99.9 %", (c) => time(c.p999_ns), "n"],
      ["longest", (c) => time(c.max_ns), "n"]], data.calls)));
}

// The same calls by the program's clock and by the kernel's.
function userLevel() {
  const level = data.user_level;
  if (!level || !level.calls.length) return;
  let call = level.calls[0];
  const tints = { user: "--c1", kernel: "--c0" };
  const ways = [["in the program", "user"], ["in the kernel", "kernel"]];
  const out = make("div", { class: "readout" });
  const at = (cdf, ns) => { let part = 0; for (const [value, below] of cdf) { if (value > ns) break; part = below; } return part; };
  const distribution = plot((place, width) => distributions(place, width,
    ways.map(([, way]) => ({ colour: tints[way], dash: way === "user" ? [6, 4] : undefined, points: call[way].cdf })),
    (ns) => { out.textContent = ns === null ? "" : `not longer than ${time(Math.round(ns))}: ` +
      ways.map(([name, way]) => `${name} ${percent(at(call[way].cdf, ns))}`).join(", "); }));
  const range = () => {
    const values = call.points.flatMap((p) => [p[1], p[2]]);
    return [Math.max(1, Math.min(...values)) * 0.8, Math.max(2, ...values) * 1.25];
  };
  const panels = ways.map(([name, way], index) => make("div", {}, make("h3", {}, `Measured ${name}`),
    plot((place, width) => single(place, width, call.points.map((p) => [p[0] / 1e9, p[1 + index]]), tints[way], range()))));
  const largest = make("div", {});
  const show = () => {
    largest.replaceChildren(later(`The ${call.largest.length} calls with most between the two`, () => table([
      ["at", (p) => time(p.at_ns), "n"], ["thread", (p) => `${p.comm} (${p.tid})`], ["in the program", (p) => time(p.user_ns), "n"],
      ["in the kernel", (p) => time(p.kernel_ns), "n"], ["between: off the CPU", (p) => time(p.away_ns), "n"],
      ["in other calls", (p) => time(p.calls_ns), "n"]], call.largest)));
  };
  const choice = make("select", { id: "user-level-of", onchange: () => {
    call = level.calls[Number(choice.value)];
    show();
    [distribution, ...panels.map((panel) => panel.querySelector(".plot"))].forEach(redraw);
    out.textContent = "";
  } }, level.calls.map((call, index) => make("option", { value: index }, call.call)));
  show();
  const rows = level.calls.flatMap((call) => ways.map(([name, way]) => ({ call, name, way, times: call[way] })));
  const first = (row) => row.way === "user";
  const waits = (budget) => budget.runqueue_ns + budget.preempted_ns;
  section("user-level", "Times in the program against times in the kernel",
    "The same calls, measured twice: by the program, from just before the call to just after it, and in the kernel, " +
    "from the call's entry to its exit. What lies between the two is the way there and back, with the recording's own " +
    "probes; what happened to come in between (another program on the CPU, a signal's handler) looks in the program " +
    "like a slow call. And of a slow call the program cannot tell whether it computed or waited.",
    make("p", {}, make("label", { for: "user-level-of" }, "Show "), choice),
    make("div", { class: "legend" }, ways.map(([name, way]) => make("label", {},
      make("span", { class: "swatch", style: `background: var(${tints[way]})` }), name))),
    distribution, out, make("div", { class: "grid" }, panels), largest,
    table([
      ["call", (r) => first(r) ? r.call.call : ""], ["calls", (r) => first(r) ? count(r.call.count) : "", "n"], ["measured", (r) => r.name],
      ["shortest", (r) => time(r.times.min_ns), "n"], ["median", (r) => time(r.times.median_ns), "n"], ["mean", (r) => time(r.times.mean_ns), "n"],
      ["99 %", (r) => time(r.times.p99_ns), "n"], ["longest", (r) => time(r.times.max_ns), "n"],
    ], rows, { id: (r) => first(r) ? anchor("user-level", r.call.call) : null }),
    table([
      ["call", (c) => c.call], ["in the program", (c) => time(c.user.total_ns), "n"],
      ["in the call: CPU", (c) => time(c.budget.cpu_ns + (c.budget.irq_ns || 0)), "n"], ["blocked", (c) => time(c.budget.blocked_ns), "n"],
      ["waits for a CPU", (c) => time(waits(c.budget)), "n"], ["outside of it", (c) => time(c.outside.total_ns), "n"],
      ["off the CPU", (c) => time(c.away_ns), "n"], ["in other calls", (c) => time(c.calls_ns), "n"],
      ["the rest", (c) => time(c.outside.total_ns - c.away_ns - c.calls_ns), "n"], ["outside: median", (c) => time(c.outside.median_ns), "n"],
      ["longest", (c) => time(c.outside.max_ns), "n"],
    ], level.calls),
    make("p", { class: "quiet" }, `${count(level.count)} calls were measured in both; of ${count(level.not_measured)} there are the kernel's times only.` +
      (level.calls_left_out ? ` ${level.calls_left_out} more calls took less.` : "")));
}

function trends() {
  if (!data.trends.length) {
    section("trends", "Cost against invocation", "No call was made often enough (256 times) to tell whether its cost grows.");
    return;
  }
  let kind = "cpu";
  const plots = data.trends.map((trend) => {
    const says = make("p", { class: "quiet" });
    const out = make("div", { class: "readout" });
    const place = plot((place, width) => {
      const of = trend[kind];
      says.replaceChildren(of.grows ? make("span", { class: "mark" }, `Grows, from ${time(of.bins[0][3])} to ${time(of.bins.at(-1)[3])}. `) : "No growth. ",
        of.rho === null ? "" : `Rank correlation ${of.rho.toFixed(2)}.`);
      return costs(place, width, trend.points.map((p) => [p[0], kind === "cpu" ? p[2] : p[1]]), of.bins, kind === "cpu" ? "CPU time" : "wall time",
        (x) => {
          const bin = x === null ? null : of.bins.find((b) => x <= b[1]);
          out.textContent = bin ? `invocations ${count(bin[0] + 1)} to ${count(bin[1] + 1)}: 10 % ${time(bin[2])}, median ${time(bin[3])}, 90 % ${time(bin[4])}` : "";
        });
    });
    return make("div", { id: anchor("trend", trend.call) }, make("h3", {}, `${trend.call}, ${count(trend.count)} calls`), says, place, out,
      later("As a table", () => table([
        ["invocations", (b) => `${count(b[0] + 1)} to ${count(b[1] + 1)}`, "n"], ["10 %", (b) => time(b[2]), "n"],
        ["median", (b) => time(b[3]), "n"], ["90 %", (b) => time(b[4]), "n"]], trend[kind].bins)));
  });
  const choose = make("select", { "aria-label": "What is shown", onchange: () => { kind = choose.value; drawAll(true); } },
    make("option", { value: "cpu" }, "CPU time"), make("option", { value: "wall" }, "wall time"));
  section("trends", "Cost against invocation",
    "Points are single calls, in their order; the line is the median of each of 32 bins, the band goes from 10 % " +
    "to 90 %. A line that climbs is a call that gets more expensive as the program runs. It is told when the " +
    "medians rise nearly throughout (Spearman's rank correlation of at least 0.75) and the line through them " +
    "(Theil-Sen) rises by at least 30 % and 50 ns.",
    make("p", {}, "Shown is the ", choose), make("div", { class: "grid" }, plots));
}

function inFlight() {
  if (!data.in_flight.length) return;
  section("in-flight", "Calls that had not returned when the recording ended",
    "Longest first, without the time of idle waits: what they came to by then, and what they waited for. A wait " +
    "for events is where an idle server is found; another one that is long may never end.",
    singleCalls(data.in_flight),
    data.in_flight_left_out ? make("p", { class: "quiet" }, `${count(data.in_flight_left_out)} more calls had not returned.`) : null);
}

function slowest() {
  if (!data.slowest.length) return;
  section("slowest", "The slowest calls",
    "Single calls, longest first, without the time of idle waits; at most eight of a name.",
    singleCalls(data.slowest));
}

function singleCalls(calls) {
  return calls.map((call, index) => make("details", { class: "slow", open: index === 0 },
      make("summary", {}, make("strong", {}, `${call.call} `), `${time(active(call.budget))}, ${call.comm} (${call.tid}), at ${time(call.at_ns)}` +
        (call.sleeps.length ? `; ${call.sleeps[0].label} ${time(call.sleeps[0].blocked_ns)}` : "") + (call.partial ? "; began before it was monitored" : "") +
        (call.in_flight ? "; had not returned" : "")),
      bars(call.budget, Math.max(1, active(call.budget))),
      make("p", {}, PARTS.filter(([, , of]) => of(call.budget) > 0).map(([name, , of]) => `${name} ${time(of(call.budget))}`).join(", ") +
        (call.in_flight ? ". Had not returned." : `. Returned ${call.ret}.`) + (call.caller ? ` Called from ${call.caller}.` : "")),
      call.sleeps.length ? table([
        ["after", (s) => time(s.begin_ns), "n"], ["blocked", (s) => time(s.blocked_ns), "n"], ["then waited for a CPU", (s) => time(s.runqueue_ns), "n"],
        ["waited for", (s) => `${s.label} (${s.class})` + (s.resource ? `: ${s.resource}` : ""), "long"], ["in", (s) => s.site, "long"],
        ["held by", (s) => s.owner || "", "long"], ["ended by", (s) => s.waker]], call.sleeps) : null,
      call.sleeps_left_out ? make("p", { class: "quiet" }, `${count(call.sleeps_left_out)} more sleeps.`) : null,
      call.stack.length ? make("pre", {}, call.stack.slice().reverse().join("\n")) : null));
}

function threads() {
  if (!data.threads.length) return;
  const widest = Math.max(1, ...data.threads.map((thread) => active(thread.budget)));
  section("threads", "Threads", "Time in calls, and off the CPU between them, without idle waits.",
    table([
      ["thread", (t) => `${t.comm} (${t.tid})`], ["process", (t) => String(t.pid), "n"], ["", (t) => bars(t.budget, widest), "bars"],
      ["calls", (t) => count(t.calls), "n"], ["wall", (t) => time(t.budget.wall_ns), "n"], ["CPU", (t) => time(t.budget.cpu_ns), "n"],
      ["between calls", (t) => t.user_cpu_ns === null ? "not known" : time(t.user_cpu_ns), "n"],
      ["blocked", (t) => time(t.budget.blocked_ns), "n"], ["of it idle", (t) => time(t.budget.idle_ns), "n"]], data.threads),
    data.threads_left_out ? make("p", { class: "quiet" }, `${count(data.threads_left_out)} more threads took less.`) : null);
}

start([heading, headline, findings, against, calls, overTime, matrix, waits, cpuWaits, onCpu, flame, latencies, userLevel, trends, slowest, inFlight, threads]);
