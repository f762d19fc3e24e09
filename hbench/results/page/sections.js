// The page of `hbench show --html`: the hierarchy as a picture, and each benchmark's evidence.

const entries = new Map(data.entries.map((entry) => [entry.benchmark, entry]));
const places = new Map(data.places.map((place) => [place.benchmark, place]));
const WIDTH = 190, HEIGHT = 44, GAP = 10, BETWEEN = 56;
let chosen = null;

// Times below ten nanoseconds need decimals here.
const precise = (ns) => Math.abs(ns) < 9.995 && ns !== 0 ? ns.toPrecision(3) + " ns" : time(ns);
const rate = (bytes) => bytes >= 1e9 ? (bytes / 1e9).toPrecision(3) + " GB/s" : (bytes / 1e6).toPrecision(3) + " MB/s";
const share = (entry) => entry.explained ? entry.explained.residual_ns / entry.explained.measured_ns : null;

function heading() {
  const { environment, noise } = data.meta;
  document.title = "hbench: what primitives are made of";
  document.getElementById("title").textContent = "What the system's primitives cost, and what they are made of";
  document.getElementById("facts").textContent =
    `Linux ${environment.kernel}; ${environment.cpu_model || environment.architecture}; ${count(environment.cpus_online)} CPUs; ` +
    `${data.meta.rounds_done} of ${data.meta.rounds} rounds, begun ${data.meta.started}; ` +
    (data.meta.instances > 1 ? `${count(data.meta.instances)} processes at the same time, ${count(data.meta.samples_dropped)} samples dropped; ` : "") +
    `other work took ${percent(noise.taken_share)} of the CPU before the run`;
}

function half(entry) {
  if (!entry.interval_ns) return "unknown";
  return percent((entry.interval_ns[1] - entry.interval_ns[0]) / 2 / Math.max(Math.abs(entry.operation_ns), 1e-12));
}

function drawPicture(place) {
  const columns = Math.max(...data.places.map((one) => one.column)) + 1;
  const rows = Math.max(...data.places.map((one) => one.row)) + 1;
  const counts = d3.rollup(data.places, (of) => of.length, (one) => one.column);
  const height = rows * (HEIGHT + GAP) + 20;
  // What is composed is on the left, what it is made of to its right.
  const x = (one) => (columns - 1 - one.column) * (WIDTH + BETWEEN) + 1;
  const y = (one) => (one.row + 0.5) * height / counts.get(one.column) - HEIGHT / 2;
  const svg = d3.select(place).append("svg").attr("width", columns * (WIDTH + BETWEEN) - BETWEEN + 2).attr("height", height)
    .attr("role", "group").attr("aria-label", "The hierarchy of benchmarks");
  const links = data.entries.flatMap((entry) => (entry.explained ? entry.explained.parts : [])
    .map((part) => ({ from: entry.benchmark, to: part.benchmark })));
  svg.append("g").selectAll("path").data(links).join("path").attr("d", (link) => {
    const [a, b] = [places.get(link.from), places.get(link.to)];
    const [x0, y0, x1, y1] = [x(a) + WIDTH, y(a) + HEIGHT / 2, x(b), y(b) + HEIGHT / 2];
    const bend = Math.min(BETWEEN, (x1 - x0) / 2);
    return `M${x0},${y0}C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
  });
  const node = svg.append("g").selectAll("a").data(data.places).join("a")
    .attr("href", "#evidence").attr("transform", (one) => `translate(${x(one)},${y(one)})`)
    .on("click", (event, one) => { choose(one.benchmark); });
  node.append("title").text((one) => entries.get(one.benchmark).operation);
  node.append("rect").attr("class", "box").attr("width", WIDTH).attr("height", HEIGHT).attr("rx", 4);
  const wide = WIDTH - 16;
  const text = (one) => one.length > 30 ? one.slice(0, 29) + "\u2026" : one;
  node.append("text").attr("x", 8).attr("y", 15).text((one) => text(one.benchmark));
  node.append("text").attr("class", "quiet").attr("x", 8).attr("y", 29).text((one) => {
    const entry = entries.get(one.benchmark);
    const measured = precise(entry.operation_ns);
    return entry.explained ? `${measured}, from parts ${precise(entry.explained.predicted_ns)}` : measured;
  });
  // The measured time is the whole bar; what is predicted beyond it is outlined from the right.
  node.filter((one) => entries.get(one.benchmark).explained).each(function (one) {
    const part = Math.max(0, 1 - share(entries.get(one.benchmark)));
    const scale = wide / Math.max(1, part);
    const bar = (name, from, to) => d3.select(this).append("rect").attr("class", name)
      .attr("x", 8 + from * scale).attr("y", HEIGHT - 10).attr("height", 5).attr("width", Math.max(0, (to - from) * scale));
    bar("predicted", 0, Math.min(part, 1));
    if (part < 1) bar("residual", part, 1); else bar("beyond", 1, part);
  });
  mark();
}

function mark() {
  const joined = new Set();
  d3.selectAll(".picture path").attr("class", (link) => {
    if (link.from !== chosen && link.to !== chosen) return null;
    joined.add(link.from).add(link.to);
    return "joined";
  });
  d3.selectAll(".picture path.joined").raise();
  d3.selectAll(".picture a").attr("class", (one) => one.benchmark === chosen ? "chosen" : joined.has(one.benchmark) ? "joined" : null);
}

function choose(name) {
  chosen = name;
  mark();
  document.getElementById("chosen").value = name;
  document.getElementById("of-chosen").replaceChildren(...evidence(entries.get(name)));
  redraw(document.getElementById("samples"));
}

// Where a part is a benchmark, its name leads to it.
const linked = (name) => entries.has(name) ? make("a", { href: "#evidence", onclick: () => choose(name) }, name) : name;

function samples(place, width) {
  const entry = entries.get(chosen);
  const points = entry.samples_ns;
  const options = {
    width, height: 220, legend: { show: false }, cursor: { drag: { x: true, y: false } },
    scales: { x: { time: false, range: () => [0.5, Math.max(data.meta.rounds_done, ...points.map((one) => one.round + 1)) + 0.5] }, y: { range: (u, low, high) => [Math.min(0, low), Math.max(high, 0) * 1.1 || 1] } },
    axes: [axis("round", (u, splits) => splits.map((v) => Number.isInteger(v) ? count(v) : ""), { size: 34 }),
      axis("time of an operation", (u, splits) => splits.map((v) => v === 0 ? "0" : precise(v)), { size: 84 })],
    series: [{}, { paths: () => null, stroke: colour("--c0"), points: { show: true, size: 6, stroke: colour("--c0"), fill: colour("--c0") } }],
  };
  const drawing = new uPlot(options, [points.map((one) => one.round + 1), points.map((one) => one.ns)], place);
  return () => drawing.destroy();
}

function evidence(entry) {
  const explained = entry.explained;
  const remarks = [];
  if (entry.modes) remarks.push(`The samples fall into two groups, at ${precise(entry.modes.low_ns)} and ${precise(entry.modes.high_ns)}: the mean is the time of neither.`);
  if (entry.drift) remarks.push(`It changed by ${percent(entry.drift)} in the course of the run.`);
  if (entry.disturbed > 0) remarks.push(`Other programs disturbed ${percent(entry.disturbed)} of the samples.`);
  const users = data.entries.filter((other) => other.explained && other.explained.parts.some((part) => part.benchmark === entry.benchmark));
  return [
    make("h3", {}, entry.benchmark),
    make("p", {}, `One operation is ${entry.operation}. It took ${precise(entry.operation_ns)} (+/- ${half(entry)}; ` +
      `${precise(entry.min_ns)} to ${precise(entry.max_ns)} in ${count(entry.samples)} samples)` +
      (entry.bytes_per_second ? `, ${rate(entry.bytes_per_second)}.` : ".")),
    remarks.length ? make("ul", { class: "caveats" }, remarks.map((one) => make("li", {}, one))) : null,
    explained ? parts(entry, explained) : make("p", {}, "No other benchmarks explain it."),
    users.length ? make("p", {}, "It is a part of ", users.map((other, at) => [at ? ", " : "", linked(other.benchmark)]), ".") : null,
    ...(entry.decomposition ? decomposed(entry.decomposition) : [make("p", { class: "quiet" },
      "There is no decomposition by DeBox's records here: ", make("code", {}, `hbench decompose ${entry.benchmark} -o FILE`),
      " makes one, and ", make("code", {}, "--records FILE"), " shows it.")]),
  ].filter(Boolean);
}

function parts(entry, explained) {
  const rows = explained.parts.map((part) => ({ name: linked(part.benchmark), ns: part.ns, how: part.how }));
  rows.push({ name: "predicted", ns: explained.predicted_ns, how: "the sum of the parts", interval: explained.predicted_interval_ns });
  rows.push({ name: "residual", ns: explained.residual_ns, how: explained.residual, interval: explained.residual_interval_ns });
  rows.push({ name: "measured", ns: explained.measured_ns, how: "", interval: explained.measured_interval_ns });
  return table([["part", (row) => row.name], ["time", (row) => precise(row.ns), "n"], ["95 %", (row) => row.interval ? `${precise(row.interval[0])} to ${precise(row.interval[1])}` : "", "n"],
    ["share", (row) => percent(row.ns / explained.measured_ns), "n"], ["how often; what the parts leave out", (row) => row.how, "long"]], rows);
}

// What `hbench decompose` found. The parts of the thread's time add up.
function decomposed(found) {
  const colours = { user: "--c0", kernel: "--c2", irq: "--irq", blocked: "--disk", runqueue: "--runqueue", preempted: "--preempted" };
  const names = { user: "program", kernel: "kernel, in calls", irq: "interrupts", blocked: "asleep in calls", runqueue: "woken, waiting for a CPU", preempted: "pushed off the CPU" };
  const kinds = Object.keys(names);
  const sum = kinds.reduce((all, kind) => all + found.own[kind + "_ns"], 0);
  const positive = kinds.reduce((all, kind) => all + Math.max(0, found.own[kind + "_ns"]), 0);
  const others = kinds.reduce((all, kind) => all + found.others[kind + "_ns"], 0);
  const rows = kinds.map((kind) => [names[kind], found.own[kind + "_ns"], found.others[kind + "_ns"], colours[kind]]);
  rows.push(["sum", sum, others, null]);
  const out = [
    make("h3", {}, "By DeBox's records"),
    make("p", {}, `Undisturbed ${precise(found.undisturbed_ns)}; while DeBox recorded it ${precise(found.observed_ns)} ` +
      `(the least disturbed of ${count(found.rounds)} rounds). The parts of the measuring thread's time add up to ${precise(sum)}. ` +
      (found.beside_ns ? `${precise(found.beside_ns)} is work beside the operation, which the benchmark subtracts. ` : "") +
      `${(found.faults_minor + found.faults_major).toFixed(2)} page faults for an operation.`),
    make("div", { class: "stack", title: "the measuring thread's time" }, rows.slice(0, -1).map(([name, ns, , tint]) =>
      make("i", { style: `background: var(${tint}); width: ${Math.max(0, 100 * ns / positive)}%`, title: `${name}: ${precise(ns)}` }))),
    table([["part", ([name, , , tint]) => [tint ? make("span", { class: "swatch", style: `background: var(${tint})` }) : null, tint ? " " : null, name]],
      ["measuring thread", (row) => precise(row[1]), "n"], ["of the observed time", (row) => percent(row[1] / found.observed_ns), "n"], ["other threads", (row) => precise(row[2]), "n"]], rows),
    found.calls.length === 0 ? null : table([["calls of all threads", (row) => row.call], ["for an operation", (row) => row.count.toFixed(2), "n"], ["cpu", (row) => precise(row.cpu_ns), "n"],
      ["interrupts", (row) => precise(row.irq_ns), "n"], ["asleep", (row) => precise(row.blocked_ns), "n"], ["without a CPU", (row) => precise(row.waiting_ns), "n"],
      ["page faults", (row) => row.faults.toFixed(2), "n"]], found.calls),
  ];
  if (found.places.length) out.push(table([["where they slept", (row) => `${row.call}: ${row.label}`], ["for an operation", (row) => row.count.toFixed(2), "n"],
    ["time", (row) => precise(row.blocked_ns), "n"], ["site", (row) => row.site, "long"]], found.places));
  if (found.tree && found.tree.calls.length) {
    const branch = (node, open) => {
      const text = `${node.function}${node.entered === null ? "" : " x " + node.entered.toFixed(2)}: ${precise(node.ns)}, itself ${precise(node.self_ns)}`;
      return make("li", {}, node.children.length
        ? make("details", { open }, make("summary", {}, text), make("ul", { class: "tree" }, node.children.map((child) => branch(child, child.ns > 0.2 * node.ns))))
        : text);
    };
    out.push(make("h3", {}, "Inside the calls"), make("p", { class: "quiet" }, `By ${found.tree.method}. While functions were followed, an operation took ${precise(found.tree.traced_ns)}.`),
      make("ul", { class: "tree" }, found.tree.calls.map((node) => branch(node, true))));
  }
  out.push(make("h3", {}, "Between the parts and the undisturbed time"), table([["class", (row) => row.class], ["time", (row) => row.ns === null ? "unknown" : precise(row.ns), "n"], ["about", (row) => row.about, "long"]], found.residuals));
  if (found.missing.length) out.push(make("ul", { class: "caveats" }, found.missing.map((one) => make("li", {}, one + "."))));
  return out.filter(Boolean);
}

function hierarchy() {
  const explained = data.entries.filter((entry) => entry.explained);
  if (!explained.length) {
    section("hierarchy", "The hierarchy", "None of the measured benchmarks is explained by others that were measured, too.");
    return;
  }
  const swatch = (variable, name) => make("span", {}, make("span", { class: "swatch", style: `background: var(${variable})` }), " ", name);
  section("hierarchy", "The hierarchy",
    "A benchmark is joined to the parts on its right, from whose times its own is predicted. Its bar is the measured time. Select one to see its evidence below.",
    make("div", { class: "legend" }, swatch("--c0", "predicted from the parts"), swatch("--c1", "residual (dashed: predicted and not measured)")),
    plot(drawPicture, { class: "plot picture" }));
}

function details() {
  const names = data.entries.map((entry) => entry.benchmark);
  const choice = make("select", { id: "chosen", "aria-label": "Benchmark", onchange: (event) => choose(event.target.value) },
    names.map((name) => make("option", { value: name }, name)));
  section("evidence", "Evidence", null, make("p", {}, choice, " ", make("a", { href: "#hierarchy" }, "back to the picture")),
    make("div", { id: "of-chosen" }), make("h3", {}, "Its samples"), plot(samples, { id: "samples" }));
  const largest = data.entries.filter((entry) => entry.explained)
    .sort((a, b) => Math.abs(share(b)) - Math.abs(share(a)));
  const first = (largest.find((entry) => entry.decomposition) || data.entries.find((entry) => entry.decomposition) || largest[0] || data.entries[0]).benchmark;
  chosen = first;
  choice.value = first;
  document.getElementById("of-chosen").replaceChildren(...evidence(entries.get(first)));
}

function all() {
  section("figures", "All benchmarks", "Times are of one operation; +/- is half of the 95 % interval.",
    table([
      ["benchmark", (entry) => linked(entry.benchmark)], ["time", (entry) => precise(entry.operation_ns), "n"],
      ["+/-", (entry) => half(entry), "n"], ["rate", (entry) => entry.bytes_per_second ? rate(entry.bytes_per_second) : "", "n"],
      ["from parts", (entry) => entry.explained ? precise(entry.explained.predicted_ns) : "", "n"],
      ["residual", (entry) => entry.explained ? percent(share(entry)) : "", "n"], ["operation", (entry) => entry.operation, "long"],
    ], data.entries));
  if (data.left_out.length) {
    section("missing", "Not measured", null, table([["benchmark", (one) => one.benchmark],
      ["round", (one) => one.round === null ? "all" : count(one.round + 1), "n"], ["reason", (one) => one.reason, "long"]], data.left_out));
  }
}

heading();
start([hierarchy, details, all]);
