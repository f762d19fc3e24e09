// SPDX-License-Identifier: MIT OR Apache-2.0
// What the threads did over time. A part of the time line can be selected with the pointer or with keys.

const seconds = (ns) => ns / 1e9;
const idlePart = "blocked: idle";
// So many of the slowest calls are marked.
const MARKS = 10;

// Series from the time line's own bins: all calls, or one of those that have a line of their own.
function seriesOfCalls() {
  const { bin_ns, parts, by_call } = timeline;
  const of = chosen.call === null ? parts : (by_call.find((one) => one.call === chosen.call) || { parts: [] }).parts;
  const wants = chosen.cause !== null && CAUSES[chosen.cause] ? CAUSES[chosen.cause][2] : null;
  const xs = parts[0].ns.map((_, bin) => seconds(bin * bin_ns));
  const series = of.filter((part) => (withIdle || part.name !== idlePart) && (!wants || !wants.length || wants.includes(part.name)))
    .map((part) => ({ name: part.name, colour: CLASSES[part.name] || "--other", values: part.ns.map((ns) => ns / bin_ns) }));
  return { xs, series, width_ns: bin_ns };
}

// Series of single calls beside each other, without idle waits.
function seriesBesideEachOther() {
  const { bin_ns, parts, by_call } = timeline;
  let next = 0;
  const xs = parts[0].ns.map((_, bin) => seconds(bin * bin_ns));
  const series = by_call.map((call) => ({ name: call.call === "(user)" ? "between calls" : call.call,
    colour: call.call.startsWith("(") ? "--other" : LINES[next++ % LINES.length],
    values: xs.map((_, bin) => call.parts.reduce((sum, part) => part.name === idlePart && !withIdle ? sum : sum + part.ns[bin], 0) / bin_ns) }))
    .filter((one) => one.values.some((value) => value > 0));
  return { xs, series, width_ns: bin_ns };
}

// Sleeps that fit the selection, by label, in the slices of the flame graph.
function seriesOfSleeps() {
  const sums = new Map();
  let last = 0;
  eachSleep((own, path) => {
    if (!own.ns.length || !sleepFits(own, path, false)) return;
    const name = own.is_rest ? "waiting for work" : path.label;
    const line = sums.get(name) || [];
    own.ns.forEach((ns, at) => { line[own.from + at] = (line[own.from + at] || 0) + ns; last = Math.max(last, own.from + at); });
    sums.set(name, line);
  });
  const first = Math.floor(firstSlice / SLICE);
  const xs = [];
  for (let at = first; at <= last; at += 1) xs.push(seconds(at * SLICE - firstSlice));
  const all = [...sums].map(([name, line]) => ({ name, values: xs.map((_, at) => (line[first + at] || 0) / SLICE), sum: line.reduce((a, b) => a + (b || 0), 0) }))
    .sort((a, b) => b.sum - a.sum);
  const series = all.slice(0, 7).map((one, at) => ({ ...one, colour: LINES[at % LINES.length] }));
  if (all.length > 7) series.push({ name: `${all.length - 7} more`, colour: "--other", values: xs.map((_, at) => all.slice(7).reduce((sum, one) => sum + one.values[at], 0)) });
  return { xs, series, width_ns: SLICE };
}

function overTime() {
  if (!timeline.parts.length) return;
  const hasLine = () => chosen.call === null || timeline.by_call.some((one) => one.call === chosen.call);
  const ofSleeps = () => chosen.thread !== null || chosen.frame !== null || (chosen.cause !== null && isLabel(chosen.cause)) || !hasLine();
  let shown = seriesOfCalls();
  const hidden = new Set();
  let beside = false;
  const out = make("div", { class: "readout", role: "status" });
  const says = make("p", {});
  const boxes = make("div", {});
  const rows = make("div", {});
  const within = make("div", {});
  let cursor = null;
  const visible = () => shown.series.filter((one) => !hidden.has(one.name));
  const read = (bin) => {
    if (bin === null || bin === undefined) { out.textContent = ""; return; }
    out.textContent = `at ${time(Math.round(shown.xs[bin] * 1e9))}: ` +
      (visible().filter((one) => one.values[bin] > 0).map((one) => `${one.name} ${one.values[bin].toFixed(2)}`).join(", ") || "nothing that is shown");
  };
  let drawing = null;
  const place = plot((place, width) => {
    const undo = stacked(place, width, shown.xs, visible(),
      [axis("seconds since the first record", null, { size: 34 }), axis("threads", null, { size: 56 })], read,
      { range: () => chosen.from === null ? null : [seconds(chosen.from), seconds(chosen.to)],
        choose: (from, to) => chooseTime(Math.max(0, from * 1e9), to * 1e9),
        marks: () => data.slowest.filter(fitsCall).slice(0, MARKS).map((call) => seconds(call.at_ns - offset_ns)), made: (made) => { drawing = made; } });
    return undo;
  }, { tabindex: "0", role: "group", "aria-label": "Time line. Left and right move, with Shift they select, Enter selects what is at the cursor." });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      const before = cursor === null ? (step > 0 ? -1 : shown.xs.length) : cursor;
      cursor = Math.max(0, Math.min(shown.xs.length - 1, before + step));
      const at = shown.xs[cursor] * 1e9;
      if (event.shiftKey) {
        const [from, to] = chosen.from === null ? [at, at] : [chosen.from, chosen.to];
        if (step > 0) chooseTime(from, Math.max(to, at) + GRID / 2);
        else if (to - from > GRID) chooseTime(from, to - GRID);
      }
      if (drawing) drawing.setCursor({ left: drawing.valToPos(shown.xs[cursor], "x"), top: 10 });
      read(cursor);
    } else if (event.key === "Enter" && cursor !== null) {
      event.preventDefault();
      chooseTime(shown.xs[cursor] * 1e9, shown.xs[cursor] * 1e9 + shown.width_ns);
    }
  });
  const choice = make("select", { id: "over-time-of", "aria-label": "What is shown over time", onchange: () => {
    beside = choice.value === "beside";
    set({ call: choice.value.startsWith("call:") ? choice.value.slice(5) : null });
  } },
    make("option", { value: "all" }, "all calls together"),
    timeline.by_call.length > 1 ? make("option", { value: "beside" }, "the calls beside each other") : null,
    timeline.by_call.map((one) => make("option", { value: "call:" + one.call }, one.call === "(user)" ? "between calls" : one.call)));
  function show() {
    const sleeps = ofSleeps();
    if (chosen.call !== null) beside = false;
    shown = sleeps ? seriesOfSleeps() : beside ? seriesBesideEachOther() : seriesOfCalls();
    choice.value = chosen.call !== null && hasLine() ? "call:" + chosen.call : beside ? "beside" : "all";
    cursor = null;
    says.textContent = sleeps
      ? `How many threads on average slept as selected, by what they waited for, in slices of ${time(shown.width_ns)}.`
      : `How many threads on average were in each state, in bins of ${time(shown.width_ns)}. Time on the CPU outside of calls is not in a history. Triangles mark the slowest calls. Drag over a part to see only that part everywhere.`;
    if (!sleeps && chosen.cause !== null && CAUSES[chosen.cause] && !CAUSES[chosen.cause][2].length) says.textContent += ` When it was ${causeName(chosen.cause)} is not recorded: all parts are shown.`;
    boxes.replaceChildren(legend(shown.series.map((one) => one.name), shown.series.map((one) => one.colour), shown.series.map((one) => !hidden.has(one.name)),
      (name, on) => { if (on) hidden.delete(name); else hidden.add(name); redraw(place); }));
    rows.replaceChildren(later("As a table", () => table(
      [["from", (bin) => time(Math.round(shown.xs[bin] * 1e9)), "n"],
        ...shown.series.map((one) => [one.name, (bin) => time(Math.round(one.values[bin] * shown.width_ns)), "n"])],
      shown.xs.map((_, bin) => bin), { caption: "Time in each state over time" })));
    within.replaceChildren(...selectedTime());
    out.textContent = shown.series.length ? "" : "Nothing of this kind was recorded.";
    redraw(place);
  }
  section("over-time", "What the threads did over time", null, says,
    make("div", { class: "controls" }, make("label", { for: "over-time-of" }, "Show "), choice), boxes, place, out, within, rows);
  reactions.push(show);
  show();
}

// What the calls did in the selected time, from the time line.
function selectedTime() {
  if (chosen.from === null) return [];
  const [low, high] = [Math.round(chosen.from / timeline.bin_ns), Math.round(chosen.to / timeline.bin_ns)];
  const sum = (part) => part.ns.slice(low, high).reduce((a, b) => a + b, 0);
  const calls = timeline.by_call.map((one) => ({ call: one.call, parts: one.parts.filter((part) => withIdle || part.name !== idlePart).map((part) => [part.name, sum(part)]) }))
    .map((one) => ({ ...one, ns: one.parts.reduce((all, [, ns]) => all + ns, 0) })).filter((one) => one.ns > 0).sort((a, b) => b.ns - a.ns);
  return [make("h3", {}, `From ${time(chosen.from)} to ${time(chosen.to)}`),
    table([["call", (one) => one.call === "(user)" ? "between calls" : one.call], ["time of all threads", (one) => time(one.ns), "n"],
      ["in", (one) => one.parts.filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]).map(([name, ns]) => `${name} ${time(ns)}`).join(", "), "long"]],
    calls, { limit: 5, caption: "Calls in the selected time", shows: (one) => chosen.call === null || one.call === chosen.call })];
}
