// The page of `latlab study`: several servers, each at several loads and recorded once.

const servers = data.servers;
const runsOf = (server) => server.analysis.runs || [server.analysis];
const titles = new Map();
for (const server of servers) {
  for (const run of runsOf(server)) titles.set(run, `${server.name}, load ${run.load}`);
  if (server.recorded) titles.set(server.recorded, server.name);
}
const titled = (run) => titles.get(run);
const loadText = (load) => Number(load.toFixed(3)).toString();
const median = (spread) => spread ? spread.median : null;
const LATENCIES = [
  ["median", "--c1", (load) => load.p50_ns], ["mean", "--c0", (load) => load.mean_ns],
  ["95 %", "--c2", (load) => load.p95_ns], ["99 %", "--c4", (load) => load.p99_ns],
];

function heading() {
  const { machine, terms } = data;
  const title = servers.map((server) => server.name).join(", ");
  document.getElementById("title").textContent = title;
  document.title = `latlab study: ${title}`;
  document.getElementById("facts").textContent =
    `${size(terms.file_set_bytes)} of files, ${size(terms.memory_bytes)} of memory for each server; a disk that takes ` +
    `${time(terms.service_us * 1000)} for a request, ${count(terms.depth)} at once (a cold open takes ${time(terms.cold_open_ns)}); ` +
    `each load ${count(terms.repeats)} times for ${count(terms.seconds)} s; ${count(machine.cpus)} CPUs, Linux ${machine.kernel}`;
}

// The median of the repeats, with their range.
function spread(of) {
  return of ? make("span", { title: `${time(of.least)} to ${time(of.greatest)}` }, time(of.median)) : "";
}

const perSecond = (rps) => count(Math.round(rps));

function capacity(server) {
  const { served_rps: served, not_served_rps: not, rps, bytes_per_second: bytes } = server.capacity;
  const found = [served === null ? null : `${perSecond(served)} requests/s are served`, not === null ? null : `${perSecond(not)} are not`].filter(Boolean);
  return `Capacity: ${found.join(", ") || "not searched for"}; closed loops get ${perSecond(rps.median)} requests/s ` +
    `(${perSecond(rps.least)} to ${perSecond(rps.greatest)}), ${size(bytes.median)}/s.`;
}

// Marks figures that come from invalid runs.
function refused(runs) {
  return runs.some((run) => run.refused) ? make("span", { class: "mark" }, " not valid") : "";
}

function loads() {
  const parts = servers.map((server) => {
    const shown = LATENCIES.map(() => true);
    const out = make("div", { class: "readout" });
    const xs = server.loads.map((load) => load.load);
    const series = LATENCIES.map(([name, colour, of]) => ({ name, colour, values: server.loads.map((load) => median(of(load))) }));
    const place = xs.length < 2 ? null : plot((place, width) => {
      const visible = series.filter((one, at) => shown[at]);
      return lines(place, width, xs, visible, [
        axis("load, as part of the capacity", (u, splits) => splits.map(loadText), { size: 34 }),
        powers("latency (logarithmic)", tick, { size: 72 }),
      ], true, (at) => {
        out.textContent = at === null || at === undefined ? "" : `load ${loadText(xs[at])}: ` +
          visible.map((one) => `${one.name} ${one.values[at] === null ? "unknown" : time(one.values[at])}`).join(", ");
      });
    });
    return make("div", {},
      make("h3", {}, `${server.name}: ${server.about}`),
      make("p", {}, capacity(server), refused(server.capacity.runs.concat(server.capacity.search)),
        ` The disk was read ${server.disk_reads_per_1000.toFixed(1)} times for each 1,000 requests.`),
      place ? legend(series.map((one) => one.name), series.map((one) => one.colour), shown, () => redraw(place)) : null, place, out,
      table([
        ["load", (load) => loadText(load.load)], ["offered/s", (load) => count(Math.round(load.offered_rps)), "n"],
        ["served/s", (load) => load.throughput_rps ? count(Math.round(load.throughput_rps.median)) : "", "n"],
        ...LATENCIES.map(([name, , of]) => [name, (load) => spread(of(load)), "n"]),
        ["inversion", (load) => fixed(median(load.inversion)), "n"], ["ideal server", (load) => fixed(median(load.ideal_inversion)), "n"],
        ["failed", (load) => count(load.runs.reduce((sum, run) => sum + Object.values(run.errors).reduce((a, b) => a + b, 0), 0)), "n"],
        ["", (load) => refused(load.runs)],
      ], server.loads));
  });
  section("loads", "Latency over load",
    "From when a request was due to its last byte; medians of the repeats (the least and the greatest where the pointer rests). " +
    "Where only some requests wait for the disk, the mean and the 95th percentile grow, and the median should not.", parts);
}

function distributions() {
  const place = make("div", {});
  const show = (server) => {
    const list = runsOf(server);
    const shown = list.map((run, at) => at < 8);
    const out = make("div", { class: "readout" });
    const drawn = plot((place, width) => {
      const visible = list.map((run, at) => ({ run, colour: tint(at), points: run.cdf })).filter((one, at) => shown[at]);
      return steps(place, width, visible, "latency (logarithmic)", "part of the requests", tick, (x) => {
        out.textContent = x === null ? "" : `up to ${time(x)}: ` + visible.map((one) => {
          const at = one.points.filter((p) => p[0] <= x).at(-1);
          return `load ${loadText(one.run.load)} ${percent(at ? at[1] : 0)}`;
        }).join(", ");
      });
    });
    const rest = list.length ? tailPlot(list, shown, (run) => `load ${loadText(run.load)} `) : null;
    return make("div", {}, make("h3", {}, server.name),
      legend(list.map((run) => `load ${loadText(run.load)}`), list.map((run, at) => tint(at)), shown, () => { redraw(drawn); if (rest) redraw(rest.place); }), drawn, out,
      rest ? [make("p", {}, "Which part of the requests took longer:"), rest.place, rest.out] : null);
  };
  place.append(...servers.map(show));
  section("latency", "Distributions of latency", "At each load, of the repeat whose median is the middle one.", place);
}

function inversions() {
  const xs = [...new Set(servers.flatMap((server) => server.loads.map((load) => load.load)))].sort((a, b) => a - b);
  const at = (server, x) => server.loads.find((load) => load.load === x);
  const series = servers.flatMap((server, index) => [
    { name: server.name, colour: tint(index), values: xs.map((x) => median((at(server, x) || {}).inversion)) },
    { name: `${server.name}, an ideal server`, colour: tint(index), dash: [4, 4], values: xs.map((x) => median((at(server, x) || {}).ideal_inversion)) },
  ]).filter((one) => one.values.some((value) => value !== null));
  if (!series.length || xs.length < 2) return;
  const shown = series.map(() => true);
  const out = make("div", { class: "readout" });
  const place = plot((place, width) => {
    const visible = series.filter((one, index) => shown[index]);
    return lines(place, width, xs, visible, [
      axis("load, as part of the capacity", (u, splits) => splits.map(loadText), { size: 34 }),
      axis("service inversion", (u, splits) => splits.map((v) => v.toFixed(1)), { size: 52 }),
    ], false, (at) => {
      out.textContent = at === null || at === undefined ? "" : `load ${loadText(xs[at])}: ` + visible.map((one) => `${one.name} ${fixed(one.values[at])}`).join(", ");
    });
  });
  section("inversion", "Service inversion over load",
    "0: responses come in the order of their sizes. 1: in the reverse order (formula 3.1). 0.67 is no order at all, less where many sizes are equal. " +
    "The dashed lines are an ideal server that divides its capacity equally among the same requests.",
    legend(series.map((one) => one.name), series.map((one) => one.colour), shown, () => redraw(place)), place, out);
}

function sizes() {
  const all = servers.flatMap(runsOf);
  consider(all, titled);
  // The highest load that can be served: the papers' figures show 0.95.
  deciles(all.filter((run) => run.load < 1).at(-1));
}

// What DeBox recorded. These sections draw later, so they stay with the runs that were considered
// last.
function recorded() {
  consider(servers.map((server) => server.recorded).filter(Boolean), titled);
  burstiness();
  causes();
}

start([heading, () => tell(data.findings, data.caveats), loads, distributions, inversions, sizes, recorded]);
