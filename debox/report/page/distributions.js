// SPDX-License-Identifier: MIT OR Apache-2.0
// How long calls took, how that changed, and how it differs from another run.

function latencies() {
  const calls = data.calls.filter((call) => call.cdf.length > 0);
  if (!calls.length) return;
  const tints = calls.map((_, index) => LINES[index % LINES.length]);
  const few = () => calls.map((call, index) => chosen.call !== null && calls.some((one) => one.name === chosen.call) ? call.name === chosen.call : index < 6);
  const shown = few();
  const dash = (index) => index < 8 ? undefined : [6, 4];
  const at = (call, ns) => { let part = 0; for (const [value, below] of call.cdf) { if (value > ns) break; part = below; } return part; };
  const out = make("div", { class: "readout" });
  const place = plot((place, width) => distributions(place, width,
    calls.map((call, i) => ({ colour: tints[i], dash: dash(i), points: call.cdf, on: shown[i] })).filter((one) => one.on),
    (ns) => { out.textContent = ns === null ? "" : `not longer than ${time(Math.round(ns))}: ` + calls.filter((_, i) => shown[i]).map((call) => `${call.name} ${percent(at(call, ns))}`).join(", "); }));
  const boxes = make("div", {});
  const show = () => {
    few().forEach((on, index) => { shown[index] = on; });
    boxes.replaceChildren(legend(calls.map((call) => call.name), tints, shown, () => redraw(place)));
    redraw(place);
  };
  const tail = [...calls].filter((call) => call.count > 100 && call.p99_ns > 0).sort((a, b) => b.p99_ns / Math.max(b.median_ns, 1) - a.p99_ns / Math.max(a.median_ns, 1))[0];
  show();
  reactions.push(show);
  folded("latency", "How long calls took", tail ? `longest tail: ${tail.name}, median ${time(tail.median_ns)}, 99 % ${time(tail.p99_ns)}` : `${count(data.calls.length)} calls`,
    "For each call the part of its invocations that took no longer than so. A step to the right far up is a " +
    "tail: a few calls that take much longer than most.",
    unfiltered("call"), boxes, place, out,
    later("As a table", () => table([
      ["call", (c) => c.name, "", (c) => c.name], ["calls", (c) => count(c.count), "n", (c) => c.count], ["median", (c) => time(c.median_ns), "n", (c) => c.median_ns],
      ["90 %", (c) => time(c.p90_ns), "n", (c) => c.p90_ns], ["99 %", (c) => time(c.p99_ns), "n", (c) => c.p99_ns], ["99.9 %", (c) => time(c.p999_ns), "n", (c) => c.p999_ns],
      ["longest", (c) => time(c.max_ns), "n", (c) => c.max_ns]], data.calls, { caption: "Quantiles of the calls' wall time", shows: (c) => chosen.call === null || c.name === chosen.call })));
}

function trends() {
  if (!data.trends.length) {
    folded("trends", "Does a call get more expensive?", "No call was made often enough (256 times) to tell whether its cost grows.");
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
    return make("div", { id: anchor("trend", trend.call), "data-call": trend.call }, make("h3", {}, `${trend.call}, ${count(trend.count)} calls`), says, place, out,
      later("As a table", () => table([
        ["invocations", (b) => `${count(b[0] + 1)} to ${count(b[1] + 1)}`, "n"], ["10 %", (b) => time(b[2]), "n"],
        ["median", (b) => time(b[3]), "n"], ["90 %", (b) => time(b[4]), "n"]], trend[kind].bins, { caption: `Cost of ${trend.call} by invocation` })));
  });
  const choice = make("select", { "aria-label": "What is shown", onchange: () => { kind = choice.value; drawAll(true); } },
    make("option", { value: "cpu" }, "CPU time"), make("option", { value: "wall" }, "wall time"));
  const growing = data.trends.filter((trend) => trend.cpu.grows || trend.wall.grows);
  reactions.push(() => {
    plots.forEach((one) => { one.hidden = chosen.call !== null && one.dataset.call !== chosen.call; });
    drawAll(false);
  });
  folded("trends", "Does a call get more expensive?", growing.length ? `${growing.map((trend) => trend.call).join(", ")} ${growing.length === 1 ? "does" : "do"}` : `none of ${count(data.trends.length)} does`,
    "Points are single calls, in their order; the line is the median of each of 32 bins, the band goes from 10 % " +
    "to 90 %. A line that climbs is a call that gets more expensive as the program runs. Growth is reported if the " +
    "medians rise nearly throughout (Spearman's rank correlation of at least 0.75) and the line through them " +
    "(Theil-Sen) rises by at least 30 % and 50 ns.",
    unfiltered("call"), make("p", {}, "Shown is the ", choice), make("div", { class: "grid" }, plots));
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
  // Differences first, calls without enough invocations last.
  const rank = (c) => Math.min(...[c.median, c.p99, c.total].map((d) => !d.change_percent ? 2 : d.verdict === "none" ? 1 : 0));
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
    ], [...comparison.calls].sort((a, b) => rank(a) - rank(b)), { caption: "Changes by call", shows: (c) => chosen.call === null || c.call === chosen.call }),
    unfiltered("call"),
    comparison.base_caveats.length ? later("What is missing in the other run", () =>
      make("ul", { class: "caveats" }, comparison.base_caveats.map((text) => make("li", {}, text)))) : null);
}
