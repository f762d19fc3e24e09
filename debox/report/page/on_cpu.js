// SPDX-License-Identifier: MIT OR Apache-2.0
// Where the threads computed, from samples.

// Stacks of samples as a tree, the outermost function first.
function sampledTree(stacks) {
  const root = { name: "all", kind: "all", value: 0, children: [], at: new Map() };
  for (const stack of stacks) {
    const frames = stack.frames.length ? [...stack.frames].reverse() : ["(no stack)"];
    const path = frames.map((name) => ["program", name]);
    if (stack.syscall !== "(user)") path.push(["call", stack.syscall]);
    if ((chosen.call !== null && stack.syscall !== chosen.call) || !hasFrame(frames)) continue;
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
  const out = make("div", { class: "readout", role: "status" });
  const words = (n) => `${count(n)} samples, ${percent(n / Math.max(samples.total, 1))}`;
  const place = flameGraph("On-CPU flame graph", () => sampledTree(samples.stacks), words, pickFrame, out);
  reactions.push(() => redraw(place));
  const rate = Math.round(1e9 / Math.max(samples.period_ns, 1));
  const left = [[samples.in_further_stacks, "have stacks that are not in the graph"], [samples.in_interrupts, "were in interrupts and are left out"], [samples.lost, "were lost"]]
    .filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
  const most = samples.functions[0];
  const title = "Where they computed: on-CPU flame graph";
  const draw = onCpuFirst ? (id, title, summary, ...rest) => section(id, title, ...rest) : folded;
  draw("on-cpu", title,
    `${count(samples.total)} samples${most ? `; most in ${most.function}: ${percent(most.samples / samples.total)}` : ""}`,
    `Samples, ${rate} in a second of each CPU. From the top: the program's stack, ` +
    "and the call if the sample was inside one. A frame is as wide as the number of samples below it.",
    unfiltered("call", "frame"), place, out,
    left.length ? make("p", { class: "quiet" }, `Of the samples ${left.join("; ")}.`) : null,
    table([
      ["function", (f) => f.function, "long"], ["most at", (f) => f.place || ""], ["samples", (f) => count(f.samples), "n", (f) => f.samples],
      ["share", (f) => percent(f.samples / samples.total), "n"], ["in calls", (f) => count(f.in_calls), "n", (f) => f.in_calls], ["mostly inside", (f) => f.inside || ""],
    ], samples.functions, { caption: "Functions by samples" }));
}

// The locks of the kernel for which calls spun. Their time is CPU time.
function spins() {
  const rows = data.spins || [];
  const sum = rows.reduce((all, spin) => all + spin.spin_ns, data.spins_left_out_ns);
  if (!sum) return;
  const lock = (spin) => spin.lock.name ? `${spin.lock.kind} ${spin.lock.name}` : spin.lock.kind;
  const taken = (spin) => spin.site;
  const most = rows[0];
  const left = data.spins_left_out;
  folded("spins", "For which locks of the kernel they spun",
    `${time(sum)}${data.account ? `, ${percent(sum / Math.max(1, data.account.kernel_cpu_ns))} of the kernel's CPU time` : ""}` +
      (most ? `; most for ${lock(most)} in ${taken(most)}: ${time(most.spin_ns)}` : ""),
    "Spinning is waiting on the CPU: it counts as CPU time of the call, and no other thread can use it.",
    unfiltered("call"),
    table([
      ["lock", lock, "long", lock], ["taken in", taken, "long", taken], ["call", (s) => s.syscall, "", (s) => s.syscall],
      ["time", (s) => time(s.spin_ns), "n", (s) => s.spin_ns], ["spins", (s) => count(s.count), "n", (s) => s.count],
      ["longest", (s) => time(s.max_ns), "n", (s) => s.max_ns],
    ], rows, { id: (s, index) => `spin-${index}`, caption: "Spins by time", pick: (s) => choose({ call: s.syscall }),
      shows: (s) => chosen.call === null || s.syscall === chosen.call }),
    left ? make("p", { class: "quiet" }, `${counted(left, "more lock")}: ${time(data.spins_left_out_ns)}.`) : null);
}
