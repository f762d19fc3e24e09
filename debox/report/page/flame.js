// SPDX-License-Identifier: MIT OR Apache-2.0
// The flame graphs, off and on the CPU. Picking a frame selects what it stands for.

const KINDS = { program: "--program", call: "--call", label: "--label", kernel: "--kernel" };

// Calls `act` with each part of the sleeps, and the frames above it: {names, call, label}.
function eachSleep(act) {
  const { names, roots } = sleepsGraph;
  const walk = (frame, above) => {
    const name = names[frame.name];
    const path = { names: [...above.names, name], call: frame.kind === "call" ? name : above.call, label: frame.kind === "label" ? name : above.label };
    frame.own.forEach((own) => act(own, path, frame));
    frame.children.forEach((child) => walk(child, path));
  };
  roots.forEach((root) => walk(root, { names: [], call: null, label: null }));
}

const isLeftOut = (own, path) => !withIdle && (own.is_rest || (path.label !== null && isIdle(path.label)));

function sleepFits(own, path, byTime = true) {
  if (isLeftOut(own, path)) return false;
  if (chosen.call !== null && path.call !== chosen.call) return false;
  if (chosen.cause !== null && isLabel(chosen.cause) && path.label !== chosen.cause) return false;
  if (chosen.thread !== null && sleepsGraph.names[own.thread] !== chosen.thread) return false;
  if (chosen.frame !== null && !path.names.some((name) => functionOf(name) === chosen.frame)) return false;
  return !byTime || chosen.from === null || own.ns.length > 0;
}

// The part of it in the selected time.
function sleptIn(own) {
  if (chosen.from === null) return own.blocked_ns;
  // The recording's first and last slice may be there in part only.
  const [low, high] = [Math.floor((chosen.from + firstSlice) / SLICE + 1e-6), Math.ceil((chosen.to + firstSlice) / SLICE - 1e-6)];
  return own.ns.slice(Math.max(0, low - own.from), Math.max(0, high - own.from)).reduce((sum, ns) => sum + ns, 0);
}

// The sleeps that fit the selection as a tree, and the time of those that have no time of their own.
function sleepTree() {
  const { names, roots } = sleepsGraph;
  let untimed = 0;
  const walk = (frame, above) => {
    const name = names[frame.name];
    const path = { names: [...above.names, name], call: frame.kind === "call" ? name : above.call, label: frame.kind === "label" ? name : above.label };
    let value = 0;
    for (const own of frame.own) {
      if (!sleepFits(own, path, false)) continue;
      if (chosen.from !== null && !own.ns.length) untimed += own.blocked_ns;
      else value += sleptIn(own);
    }
    const children = frame.children.map((child) => walk(child, path)).filter(Boolean);
    value += children.reduce((sum, child) => sum + child.value, 0);
    return value > 0 ? { name, value, kind: frame.kind, children } : null;
  };
  const children = roots.map((root) => walk(root, { names: [], call: null, label: null })).filter(Boolean);
  return [{ name: "all", kind: "all", value: children.reduce((sum, child) => sum + child.value, 0), children }, untimed];
}

// The stack with most time of a call's waits, the innermost frame first.
function longestStack(call, label, caller) {
  let most = 0;
  let stack = [];
  eachSleep((own, path) => {
    if (path.call !== call || path.label !== label || isLeftOut(own, path) || own.blocked_ns <= most) return;
    if (caller && !path.names.some((name) => functionOf(name) === functionOf(caller))) return;
    most = own.blocked_ns;
    stack = path.names.filter((name) => name !== label && name !== call && name !== "(no stack)").reverse();
  });
  return stack;
}

// A flame graph with keys. `tree` returns the root; `words` says how much a value is; `pick` gets a frame's data.
function flameGraph(name, tree, words, pick, out) {
  let chart = null;
  const place = plot((place, width) => {
    const root = tree();
    chart = null;
    if (!root.children.length) { place.append(make("p", { class: "quiet empty" }, "Nothing fits what is selected.")); return null; }
    const label = (d) => `${d.data.name}: ${words(d.value, root.value)}`;
    chart = flamegraph.default().width(width).cellHeight(20).transitionDuration(0).minFrameSize(1).inverted(true)
      .selfValue(false).sort((a, b) => b.value - a.value)
      .setColorMapper((d) => d.highlight ? colour("--c4") : colour(KINDS[d.data.kind] || "--program"))
      .setLabelHandler(label)
      .setDetailsHandler((text) => { out.textContent = text || ""; })
      .setSearchHandler((results, sum) => { out.textContent = `${results.length} frames match: ${words(sum, root.value)}`; })
      .onClick((d) => { if (d.data.kind !== "all") pick(d.data); });
    d3.select(place).datum(root).call(chart);
    // The library draws over several frames of the screen, of which there are none before printing.
    d3.timerFlush();
    d3.select(place).selectAll("g.frame rect").interrupt().attr("width", function () { return this.parentNode.getAttribute("width"); });
    if (wanted) chart.search(escapeForSearch(wanted));
    keysOf(place, label, pick, out);
    return () => chart.destroy();
  }, { tabindex: "0", role: "group", "aria-label": `${name}. Arrow keys go from frame to frame, Enter selects.` });
  searches.push((text) => { if (!chart) return; if (text) chart.search(escapeForSearch(text)); else { chart.clear(); out.textContent = ""; } });
  return place;
}

// The library takes a regular expression.
const escapeForSearch = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

function keysOf(place, label, pick, out) {
  let at = null;
  const frames = () => d3.select(place).selectAll("g.frame");
  place.onkeydown = (event) => {
    if (event.target !== place) return;
    const all = frames().data();
    const siblings = at && at.parent ? at.parent.children.filter((d) => all.includes(d)).sort((a, b) => a.x0 - b.x0) : [];
    const beside = (step) => siblings[siblings.indexOf(at) + step];
    const inside = at ? (at.children || []).filter((d) => all.includes(d)).sort((a, b) => b.value - a.value)[0] : all.find((d) => !d.parent);
    const next = { ArrowDown: inside, ArrowUp: at && at.parent, ArrowLeft: at && beside(-1), ArrowRight: at && beside(1) };
    if (event.key === "Enter" && at && at.parent) { event.preventDefault(); pick(at.data); return; }
    if (!(event.key in next)) return;
    event.preventDefault();
    if (!next[event.key]) return;
    at = next[event.key];
    frames().classed("at", (d) => d === at);
    out.textContent = label(at);
  };
}

function pickFrame(frame) {
  if (frame.kind === "call") choose({ call: frame.name });
  else if (frame.kind === "label") choose({ cause: frame.name });
  else choose({ frame: functionOf(frame.name) });
}

function flame() {
  const { roots, pruned_frames } = sleepsGraph;
  if (!roots.length) return;
  const out = make("div", { class: "readout", role: "status" });
  const note = make("p", { class: "quiet" });
  const words = (ns, all) => `${time(ns)}, ${percent(ns / Math.max(all, 1))}`;
  const tree = () => {
    const [root, untimed] = sleepTree();
    note.textContent = `${time(root.value)} of sleeps ${!isNarrowed() ? "" : "fit what is selected and "}are in the graph. ` + (pruned_frames ? `${count(pruned_frames)} frames that are too small to be seen are left out; the frames above have their time. ` : "") +
      (untimed ? `${time(untimed)} of short sleeps are not in the graph: when they were is not recorded.` : "");
    return root;
  };
  const place = flameGraph("Off-CPU flame graph", tree, words, pickFrame, out);
  const rows = make("div", {});
  const show = () => {
    out.textContent = "";
    rows.replaceChildren(later("As a table", () => {
      const found = new Map();
      eachSleep((own, path) => {
        const ns = sleepFits(own, path) ? sleptIn(own) : 0;
        const key = path.names.join(" ; ");
        if (ns > 0) found.set(key, (found.get(key) || 0) + ns);
      });
      return table([["stack", (row) => row[0], "long"], ["slept", (row) => time(row[1]), "n", (row) => row[1]]],
        [...found].sort((a, b) => b[1] - a[1]).slice(0, 200), { caption: "Stacks by time slept" });
    }));
    redraw(place);
  };
  const text = "From the top: the program's stack, the call, the label of the wait, the kernel's stack. A frame is as wide " +
    "as the time that was slept below it. Click a frame to see only what contains it, here and everywhere.";
  const parts = [make("div", { class: "legend" }, Object.entries(KINDS).map(([name, tint]) => make("span", {}, swatch(tint), " ", name))),
    unfilteredByCpu(), place, out, note, rows];
  const title = "Where they slept: off-CPU flame graph";
  if (onCpuFirst && slept_ns < 0.01 * data.active.of_ns) folded("flame", title, `only ${time(slept_ns)} of sleeps that were not idle`, text, parts);
  else section("flame", title, text, parts);
  reactions.push(show);
  show();
}

// Causes that are no sleeps are not in the graph of sleeps.
function unfilteredByCpu() {
  const note = make("p", { class: "quiet note", hidden: true });
  reactions.push(() => {
    note.hidden = chosen.cause === null || isLabel(chosen.cause);
    if (note.hidden) return;
    const where = { "user CPU": ["on-cpu", "On-CPU flame graph"], "kernel CPU": ["on-cpu", "On-CPU flame graph"],
      "waiting for a CPU": ["cpu-waits", "Who had the CPU"] }[chosen.cause];
    note.replaceChildren(`${capital(causeName(chosen.cause))} is no sleep: this graph shows all sleeps. `,
      where && document.getElementById(where[0]) ? make("a", { href: "#" + where[0] }, where[1]) : "");
  });
  return note;
}
