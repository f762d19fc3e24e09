// SPDX-License-Identifier: MIT OR Apache-2.0
// What the program measured, against what the kernel measured.

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
      ["in other calls", (p) => time(p.calls_ns), "n"]], call.largest, { caption: "Calls with most time outside" })));
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
  folded("user-level", "Times in the program against times in the kernel", `${count(level.count)} calls were measured in both`,
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
    ], rows, { caption: "Times in the program and in the kernel", limit: 20, id: (r) => first(r) ? anchor("user-level", r.call.call) : null }),
    table([
      ["call", (c) => c.call], ["in the program", (c) => time(c.user.total_ns), "n"],
      ["in the call: CPU", (c) => time(c.budget.cpu_ns + (c.budget.irq_ns || 0)), "n"], ["blocked", (c) => time(c.budget.blocked_ns), "n"],
      ["waits for a CPU", (c) => time(waits(c.budget)), "n"], ["outside of it", (c) => time(c.outside.total_ns), "n"],
      ["off the CPU", (c) => time(c.away_ns), "n"], ["in other calls", (c) => time(c.calls_ns), "n"],
      ["the rest", (c) => time(c.outside.total_ns - c.away_ns - c.calls_ns), "n"], ["outside: median", (c) => time(c.outside.median_ns), "n"],
      ["longest", (c) => time(c.outside.max_ns), "n"],
    ], level.calls, { caption: "Where the program's time went" }),
    make("p", { class: "quiet" }, `${count(level.count)} calls were measured in both; of ${count(level.not_measured)} there are the kernel's times only.` +
      (level.calls_left_out ? ` ${level.calls_left_out} more calls took less.` : "")));
}
