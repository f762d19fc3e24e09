// Sections about runs; the pages of `latlab analyze` and `latlab study` consist of them.

// The runs that the sections show, whether there are several, and the name of each.
let runs = [];
let several = false;
let label = (run) => run.name;
const PERCENTS = [["p5", "5 %"], ["p50", "50 %"], ["p95", "95 %"], ["p99", "99 %"], ["p99_9", "99.9 %"]];
// Colours of series 1 to 4: light for small responses, dark for large ones.
const SERIES = ["--c5", "--c2", "--c4", "--c1"];
const tint = (index) => LINES[index % LINES.length];
const fixed = (value, digits = 3) => value === null || value === undefined ? "" : value.toFixed(digits);
const failures = (run) => Object.values(run.failed).reduce((sum, n) => sum + n, 0);

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 999.5 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${at === 0 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[at]}`;
}

// What varies between the runs: [name, function that returns a run's value, function that formats it].
let VARIED = [];

// `called`: names of the runs; without it, they are named after what varies. If both data set and load
// vary, a run's name has both.
function consider(list, called) {
  runs = list;
  several = runs.length > 1 || Boolean(called);
  VARIED = [
    ["load, as part of the capacity", (run) => run.load, (x) => Number(x.toFixed(3)).toString()],
    ["requests offered per second", (run) => run.offered_rps, (x) => count(Math.round(x))],
    ["data set", (run) => run.data_set_bytes, size],
    ["connections", (run) => run.connections, (x) => count(x)],
  ].filter(([, of]) => runs.length > 1 && runs.every((run) => of(run) !== null) && new Set(runs.map(of)).size > 1);
  const varied = VARIED;
  label = called || ((run) => varied.length
    ? varied.map(([name, of, show]) => `${name.split(",")[0]} ${show(of(run))}`).slice(0, 2).join(", ")
    : run.name);
}

function between(bounds, unit) {
  const [low, high] = bounds;
  if (low === null && high === null) return "too few requests";
  return `${low === null ? "?" : inUnit(low, unit)} to ${high === null ? "?" : inUnit(high, unit)}`;
}

// The answer: the latency of the slowest run.
function inOneSentence() {
  const slowest = [...runs].sort((a, b) => b.percentiles.p99 - a.percentiles.p99)[0];
  const of = (key) => inUnit(slowest.percentiles[key], slowest.unit);
  return `${several ? `${capital(label(slowest))}: half` : "Half"} of ${count(slowest.requests)} requests took up to ${of("p50")}, ` +
    `99 % up to ${of("p99")}, the slowest ${inUnit(slowest.latency.max, slowest.unit)}.`;
}

// Shows the answer, the findings and the caveats. The page of a study begins with its first finding.
function tell(findings, caveats) {
  const show = (finding) => [finding.text + " ", make("a", { href: "#" + finding.evidence, "aria-label": `Show the evidence: ${finding.evidence}` }, "Show")];
  const says = runs.length ? inOneSentence() : findings.length ? show(findings[0]) : null;
  const others = runs.length ? findings : findings.slice(1);
  if (says) {
    section("findings", "What stands out", null, make("p", { class: "says" }, says),
      others.length ? make("ol", { class: "findings" }, others.map((finding) => make("li", {}, show(finding)))) : null);
  }
  if (caveats.length) {
    section("missing", "What is missing or uncertain", null, make("ul", { class: "caveats" }, caveats.map((text) => make("li", {}, text))));
  }
}

const FROM = {
  intended: "From when a request was due, whether or not it could be sent then, to its last byte.",
  sent: "From when a request was sent to its last byte.",
  "first-byte": "From when a request was sent to the first byte of the response.",
};

function latencies() {
  const shown = runs.map((run, index) => index < 8);
  const out = make("div", { class: "readout" });
  const unit = runs[0].unit;
  const same = runs.every((run) => run.unit === unit);
  const place = plot((place, width) => {
    const visible = runs.map((run, index) => ({ run, colour: tint(index), points: run.cdf })).filter((one, index) => shown[index]);
    return steps(place, width, visible, unit === "ns" ? "latency (logarithmic)" : "latency, in the file's own unit (logarithmic)", "part of the requests",
      (value) => unit === "ns" ? tick(value) : inUnit(value, unit), (x) => {
        out.textContent = x === null ? "" : `up to ${inUnit(x, unit)}: ` + visible.map((one) => {
          const at = one.points.filter((p) => p[0] <= x).at(-1);
          return `${several ? label(one.run) + " " : ""}${percent(at ? at[1] : 0)}`;
        }).join(", ");
      });
  });
  section("latency", "Latency", [...new Set(runs.map((run) => FROM[run.latency_from]))].join(" ") +
    (unit === "ns" ? "" : " The file does not say what unit its latencies are in."),
    several ? legend(runs.map(label), runs.map((run, index) => tint(index)), shown, () => redraw(place)) : null,
    same ? [place, out] : make("p", { class: "mark" }, "The files are not in the same unit, so there is no plot of them together."),
    table([
      ["run", (run) => several ? label(run) : run.name], ["requests", (run) => count(run.requests), "n"], ["failed", (run) => count(failures(run)), "n"],
      ...PERCENTS.map(([key, name]) => [name, (run) => inUnit(run.percentiles[key], run.unit), "n"]),
      ["mean", (run) => inUnit(run.latency.mean, run.unit), "n"], ["highest", (run) => inUnit(run.latency.max, run.unit), "n"],
    ], runs),
    later("Intervals at 95 %", () => table([
      ["run", (run) => several ? label(run) : run.name],
      ...PERCENTS.map(([key, name]) => [name, (run) => between(run.intervals[key], run.unit), "n"]),
      ["mean", (run) => between(run.intervals.mean, run.unit), "n"],
    ], runs)));
}

// The tails of the runs that are shown. `name`: returns a run's name for the line below.
function tailPlot(list, shown, name) {
  const unit = list[0].unit;
  const out = make("div", { class: "readout" });
  const place = plot((place, width) => {
    const visible = list.map((run, index) => ({ run, colour: tint(index), points: run.cdf })).filter((one, index) => shown[index]);
    return tails(place, width, visible, unit === "ns" ? "latency (logarithmic)" : "latency, in the file's own unit (logarithmic)",
      (value) => unit === "ns" ? tick(value) : inUnit(value, unit), (x) => {
        out.textContent = x === null ? "" : `longer than ${inUnit(x, unit)}: ` + visible.map((one) => {
          const at = one.points.filter((p) => p[0] <= x).at(-1);
          return `${name(one.run)}${Number((100 * (1 - (at ? at[1] : 0))).toPrecision(3))} %`;
        }).join(", ");
      });
  });
  return { place, out };
}

function tail() {
  const unit = runs[0].unit;
  if (!runs.every((run) => run.unit === unit && run.cdf.some((p) => p[0] > 0))) return;
  const shown = runs.map((run, index) => index < 8);
  const { place, out } = tailPlot(runs, shown, (run) => several ? label(run) + " " : "");
  section("tail", "The tail",
    "Which part of the requests took longer, down to a single one. A straight line down is a tail that ends; a line that goes flat is a few requests that are far from the rest.",
    several ? legend(runs.map(label), runs.map((run, index) => tint(index)), shown, () => redraw(place)) : null, place, out);
}

const OVER_TIME = [["median", "--c1", (one) => one.p50], ["95 %", "--c2", (one) => one.p95], ["99 %", "--c4", (one) => one.p99], ["highest", "--c6", (one) => one.max]];

function overTheRun() {
  const known = runs.filter((run) => run.over_time.length > 1);
  if (!known.length) return;
  const build = (run) => {
    const xs = run.over_time.map((one) => (one.begin_ns + one.end_ns) / 2e9);
    const series = OVER_TIME.map(([name, colour, of]) => ({ name, colour, values: run.over_time.map(of) }));
    const shown = series.map(() => true);
    const marks = run.steps.map((step) => [step.begin_ns / 1e9, `${count(Math.round(step.offered_rps))}/s`]);
    const out = make("div", { class: "readout" });
    const place = plot((place, width) => {
      const visible = series.filter((one, index) => shown[index]);
      return overTime(place, width, xs, visible, marks, [
        axis("seconds since the start of the run, by when requests were to start", null, { size: 34 }),
        powers("latency (logarithmic)", (value) => run.unit === "ns" ? tick(value) : inUnit(value, run.unit), { size: 72 }),
      ], (at) => {
        out.textContent = at === null || at === undefined ? "" : `at ${xs[at].toFixed(2)} s, ${count(run.over_time[at].requests)} requests: ` +
          visible.map((one) => `${one.name} ${one.values[at] === null ? "none" : inUnit(one.values[at], run.unit)}`).join(", ");
      });
    });
    return [legend(series.map((one) => one.name), series.map((one) => one.colour), shown, () => redraw(place)), place, out,
      run.steps.length ? table([
        ["offered/s", (step) => count(Math.round(step.offered_rps)), "n"],
        ["from", (step) => `${(step.begin_ns / 1e9).toFixed(2)} s`, "n"], ["to", (step) => `${(step.end_ns / 1e9).toFixed(2)} s`, "n"],
        ["requests", (step) => count(step.requests), "n"], ["failed", (step) => count(step.failed), "n"],
        ...PERCENTS.map(([key, name]) => [name, (step) => step.percentiles ? inUnit(step.percentiles[key], run.unit) : "", "n"]),
        ["mean", (step) => step.mean === null ? "" : inUnit(step.mean, run.unit), "n"], ["highest", (step) => step.max === null ? "" : inUnit(step.max, run.unit), "n"],
      ], run.steps) : null];
  };
  const place = make("div", {});
  const show = (at) => { place.replaceChildren(...build(known[at]).filter(Boolean)); drawAll(false); };
  const choose = make("select", { "aria-label": "Which run", onchange: () => show(Number(choose.value)) },
    known.map((run, at) => make("option", { value: String(at) }, label(run))));
  section("time", "Latency over time",
    "Good requests by when they were to start, in intervals of equal length. The dashed lines are where a step of the rate begins.",
    known.length > 1 ? make("p", {}, "Shown is ", choose) : null, place);
  show(0);
}

function overLoads() {
  const unit = runs[0].unit;
  if (!VARIED.length || !runs.every((run) => run.unit === unit)) return;
  const parts = VARIED.slice(0, 2).map(([name, of, show]) => {
    // Each line connects the runs that are otherwise equal.
    const others = VARIED.slice(0, 2).filter((other) => other[1] !== of);
    const groups = new Map();
    for (const run of runs) {
      const key = others.map(([other, value, text]) => `${other.split(",")[0]} ${text(value(run))}`).join(", ");
      groups.set(key, [...(groups.get(key) || []), run]);
    }
    return [...groups].filter(([, group]) => group.length > 1).map(([key, group]) => {
      const sorted = group.slice().sort((a, b) => of(a) - of(b));
      const shown = PERCENTS.map(() => true).concat(true);
      const series = [...PERCENTS.map(([p, text], index) => ({ name: text, colour: tint(index), values: sorted.map((run) => run.percentiles[p]) })),
        { name: "mean", colour: "--c6", dash: [6, 4], values: sorted.map((run) => run.latency.mean) }];
      const out = make("div", { class: "readout" });
      const place = plot((place, width) => {
        const visible = series.filter((one, index) => shown[index]);
        return lines(place, width, sorted.map(of), visible, [
          axis(name, (u, splits) => splits.map(show), { size: 34 }),
          powers("latency (logarithmic)", (value) => unit === "ns" ? tick(value) : inUnit(value, unit), { size: 72 }),
        ], true, (at) => {
          out.textContent = at === null || at === undefined ? "" : `${show(of(sorted[at]))}: ` + visible.map((one) => `${one.name} ${inUnit(one.values[at], unit)}`).join(", ");
        });
      });
      return make("div", {}, key ? make("h3", {}, key) : null,
        legend(series.map((one) => one.name), series.map((one) => one.colour), shown, () => redraw(place)), place, out);
    });
  }).flat();
  if (parts.length) section("loads", "Latency over " + VARIED.slice(0, 2).map(([name]) => name.split(",")[0]).join(" and over "), null, parts);
}

function inversion() {
  const known = runs.filter((run) => run.service_inversion !== null);
  if (!known.length) return;
  const corrected = (run) => run.inversion.corrected;
  const parts = [];
  if (VARIED.length && known.length > 1) {
    const [name, of, show] = VARIED[0];
    const sorted = known.slice().sort((a, b) => of(a) - of(b));
    const rising = new Set(sorted.map(of)).size === sorted.length;
    const series = [
      { name: "this server", colour: "--c1", values: sorted.map((run) => run.service_inversion) },
      { name: "an ideal server", colour: "--c2", values: sorted.map((run) => corrected(run) ? corrected(run).ideal : null) },
      { name: "no order at all", colour: "--c6", dash: [6, 4], values: sorted.map((run) => run.inversion.random) },
    ].filter((one) => one.values.some((value) => value !== null));
    if (rising) {
      const out = make("div", { class: "readout" });
      const shown = series.map(() => true);
      const place = plot((place, width) => {
        const visible = series.filter((one, index) => shown[index]);
        return lines(place, width, sorted.map(of), visible, [
          axis(name, (u, splits) => splits.map(show), { size: 34 }),
          axis("service inversion", (u, splits) => splits.map((v) => v.toFixed(1)), { size: 52 }),
        ], false, (at) => {
          out.textContent = at === null || at === undefined ? "" : `${show(of(sorted[at]))}: ` + visible.map((one) => `${one.name} ${fixed(one.values[at])}`).join(", ");
        });
      });
      parts.push(legend(series.map((one) => one.name), series.map((one) => one.colour), shown, () => redraw(place)), place, out);
    }
  }
  const range = (interval) => interval ? `${fixed(interval[0])} to ${fixed(interval[1])}` : "too few requests";
  const why = [...new Set(known.map((run) => run.inversion.not_corrected).filter(Boolean))];
  section("inversion", "Service inversion",
    "0: responses come in the order of their sizes. 1: in the reverse order (formula 3.1). Some of it is in the load: an ideal server " +
    "that divides its capacity equally among its requests has it as well. What is left when that is subtracted is the server's own.",
    parts, table([
      ["run", (run) => several ? label(run) : run.name], ["inversion", (run) => fixed(run.service_inversion), "n"],
      ["interval at 95 %", (run) => range(run.inversion.interval), "n"],
      ["ideal server", (run) => corrected(run) ? fixed(corrected(run).ideal) : "", "n"],
      ["corrected", (run) => corrected(run) ? (corrected(run).value > 0 ? "+" : "") + fixed(corrected(run).value) : "", "n"],
      ["interval at 95 %", (run) => corrected(run) ? range(corrected(run).interval) : "", "n"],
      ["no order", (run) => fixed(run.inversion.random), "n"], ["reverse", (run) => fixed(run.inversion.reversed), "n"],
      ["Jain, connections", (run) => fixed(run.jain.per_connection), "n"], ["Jain, requests", (run) => fixed(run.jain.per_request), "n"],
    ], known),
    why.length ? make("p", { class: "quiet" }, `No corrected form: ${why.join("; ")}.`) : null);
}

// `first`: the run that is shown at the beginning.
function deciles(first) {
  const known = runs.filter((run) => run.deciles.length);
  if (!known.length) return;
  const range = (one) => one.size_min === one.size_max ? size(one.size_min) : `${size(one.size_min)} to ${size(one.size_max)}`;
  const build = (run) => [
    make("div", { class: "legend" }, run.series.map((one, at) => make("label", {},
      make("span", { class: "swatch", style: `background: var(${SERIES[at]})` }), `series ${one.series}: ${range(one)}, ${percent(one.share)}`))),
    table([
      ["tenth", (d) => String(d.decile)], ["latency up to", (d) => inUnit(d.latency_max, run.unit), "n"],
      ["sizes in it", (d) => make("div", { class: "series", role: "img", "aria-label": d.series.map((part, at) => `series ${at + 1} ${percent(part)}`).join(", ") },
        d.series.map((part, at) => part > 0 ? make("i", { title: `series ${at + 1}: ${percent(part)}`, style: `width: ${100 * part}%; background: var(${SERIES[at]})` }) : null)), "wide"],
      ["mean size", (d) => size(d.size_mean), "n"], ["requests", (d) => count(d.requests), "n"],
    ], run.deciles.filter((d) => d.requests > 0)),
  ];
  const place = make("div", {});
  const show = (at) => place.replaceChildren(...build(known[at]).flat());
  const shown = Math.max(0, first ? known.indexOf(first) : known.length - 1);
  const choose = make("select", { "aria-label": "Which run", onchange: () => show(Number(choose.value)) },
    known.map((run, at) => make("option", { value: String(at), selected: at === shown }, label(run))));
  section("deciles", "Sizes by tenth of the requests",
    "The requests from the fastest tenth to the slowest, and which sizes are in each. A server without service inversion has the small " +
    "responses at the top and the large ones at the bottom; bars that are all alike are a server that does not look at sizes.",
    several ? make("p", {}, "Shown is ", choose) : null, place);
  show(shown);
}

function burstiness() {
  const known = runs.filter((run) => run.server && (run.server.burstiness.ready || run.server.burstiness.runnable));
  if (!known.length) return;
  const parts = [];
  const ready = known.filter((run) => run.server.burstiness.ready);
  if (ready.length) {
    const out = make("div", { class: "readout" });
    const shown = ready.map((run, at) => at < 8);
    const place = plot((place, width) => {
      const visible = ready.map((run, at) => ({ run, colour: tint(at), points: run.server.burstiness.ready.cdf })).filter((one, at) => shown[at]);
      return steps(place, width, visible, "events for each return of epoll_wait, select or poll (logarithmic)", "part of the calls", (value) => count(value), (x) => {
        out.textContent = x === null ? "" : `up to ${count(Math.round(x))}: ` + visible.map((one) => {
          const at = one.points.filter((p) => p[0] <= x).at(-1);
          return `${several ? label(one.run) + " " : ""}${percent(at ? at[1] : 0)} of the calls`;
        }).join(", ");
      });
    });
    const rows = ready.flatMap((run) => [[run, run.server.burstiness.ready], ...run.server.burstiness.threads.map((thread) => [run, thread])]);
    parts.push(make("h3", {}, "Events at once"),
      ready.length > 1 ? legend(ready.map(label), ready.map((run, at) => tint(at)), shown, () => redraw(place)) : null, place, out,
      table([
        ["thread", ([run, one]) => (several ? `${label(run)}: ` : "") + (one.tid === null ? "all" : `${one.comm} (${one.tid})`)],
        ["calls with events", ([, one]) => count(one.calls), "n"], ["mean", ([, one]) => fixed(one.mean, 2), "n"], ["median", ([, one]) => count(one.median), "n"],
        ["95 %", ([, one]) => count(one.p95), "n"], ["most", ([, one]) => count(one.max), "n"], ["over 100", ([, one]) => percent(one.over_100), "n"],
        ["calls with none", ([, one]) => count(one.empty), "n"],
      ], rows));
  }
  for (const run of known) {
    const { runnable, no_runnable: why } = run.server.burstiness;
    if (!runnable) {
      parts.push(make("p", { class: "quiet" }, `${several ? label(run) + ": " : ""}how many threads were runnable is not known: ${why || "no thread was seen"}.`));
      continue;
    }
    const bars = runnable.histogram.map(([from, to, part]) => ({ name: from === to ? count(from) : `${count(from)} to ${count(to)}`, part }));
    const out = make("div", { class: "readout" });
    parts.push(make("h3", {}, `Runnable threads${several ? ", " + label(run) : ""}`),
      make("p", {}, `Of ${count(runnable.threads)} threads, ${fixed(runnable.mean, 2)} were runnable on average: on a CPU, or waiting for one. ` +
        `None was ${percent(runnable.none)} of the time; more than 80 % of them were ${percent(runnable.over_80_percent)} of it.`),
      plot((place, width) => columns(place, width, bars, "runnable threads", (at) => {
        out.textContent = at === null || at === undefined ? "" : `${bars[at].name} runnable: ${percent(bars[at].part)} of the time`;
      })), out);
  }
  section("burstiness", "Burstiness of the server",
    "From the server's own records. A server that is held up finds much to do when it goes on: many events at once, or no thread runnable and then most of them.", parts);
}

function causes() {
  const known = runs.filter((run) => run.server);
  if (!known.length) return;
  const parts = known.map((run) => {
    const found = run.server.causes;
    const head = several ? make("h3", {}, label(run)) : null;
    if (!found) return [head, make("p", { class: "quiet" }, `Not known: ${run.server.no_causes}.`)];
    const longest = Math.max(1, ...found.causes.map((cause) => cause.slow_ns));
    return [head,
      make("p", {}, `${count(found.slow.requests)} requests were slower than ${found.percent} % of all: ${time(found.slow.mean_ns)} on average from sending to the last ` +
        `byte, of which some thread of the server was blocked ${time(found.slow.blocked_ns)}. Of ${count(found.ordinary.requests)} ordinary ones: ` +
        `${time(found.ordinary.mean_ns)}, blocked ${time(found.ordinary.blocked_ns)}.` +
        (found.slow.unsent_ns >= 1 ? ` Slow ones had been due for ${time(found.slow.unsent_ns)} when they were sent.` : "") +
        (found.outside ? ` ${count(found.outside)} more slow ones are not all in the time that was recorded.` : "")),
      found.causes.length ? table([
        ["waited for", (c) => c.label], ["in", (c) => c.call === "(user)" ? "between calls" : c.call], ["threads", (c) => `${c.comm}${c.threads > 1 ? " × " + count(c.threads) : ""}`],
        ["in a slow request", (c) => time(c.slow_ns), "n"],
        ["", (c) => make("div", { class: "stack" }, make("i", { style: `width: ${100 * Math.max(0, c.slow_ns) / longest}%; background: var(--disk)` })), "brief"],
        ["in an ordinary one", (c) => time(c.ordinary_ns), "n"],
        ["at any time", (c) => time(c.anytime_ns), "n"], ["excess", (c) => time(c.excess_ns), "n"], ["explains", (c) => percent(c.explains), "n"], ["of the slow ones", (c) => percent(c.part), "n"], ["longest", (c) => time(c.longest_ns), "n"],
        ["mostly", (c) => c.resource || "", "long"], ["held by", (c) => c.owner || "", "long"],
      ], found.causes) : make("p", {}, "No thread of the server was blocked while they were on their way, idle waits aside."),
      found.causes.length ? make("p", {}, `Those that explain a tenth or more explain ${percent(found.explained)} of the time of slow requests together.`) : null,
      found.left_out ? make("p", { class: "quiet" }, `${count(found.left_out)} more kinds of waits.`) : null];
  });
  section("causes", "What the server waited for, or computed, in slow requests",
    "Waits of the server's threads while slow requests were on their way, beside those while ordinary ones were, and in intervals as long as the slow ones at any " +
    "time of the run. Which thread serves a request is not known from outside: what blocks at any time alike is no cause. Of several threads, the one that waited longest counts. " +
    "Excess is what slow requests saw more than any time.", parts);
}
