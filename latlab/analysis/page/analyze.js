// The page of `latlab analyze`.

function heading() {
  const title = several ? `${count(runs.length)} runs` : runs[0].name;
  document.getElementById("title").textContent = title;
  document.title = `latlab: ${title}`;
  const first = runs[0];
  const facts = several ? [runs.map((run) => run.name).join(", ")] : [
    `${count(first.requests)} requests`,
    first.seconds === null ? null : `in ${first.seconds.toPrecision(4)} s, ${count(Math.round(first.requests_per_second))} per second`,
    first.bytes_per_second === null ? null : `${size(first.bytes_per_second)}/s`,
    first.load === null ? null : `load ${first.load}`,
  ];
  document.getElementById("facts").textContent = facts.filter(Boolean).join("; ");
}

function findings() {
  const told = new Map();
  for (const run of runs) {
    for (const text of [...run.caveats, ...(run.server ? run.server.caveats : [])]) told.set(text, [...(told.get(text) || []), run.name]);
  }
  tell(data.findings, [...told].map(([text, names]) => several && names.length < runs.length ? `${names.join(", ")}: ${text}` : text));
}

function against() {
  if (!data.against || !data.against.length) return;
  const words = { lower: "lower", higher: "higher", none: "no difference that the data show", unknown: "too few requests" };
  section("against", "Against another run",
    `In brackets stands the interval in which the change is: all of them are right at once with ${Number((100 * data.against[0].confidence).toPrecision(4))} % (bootstrap over blocks of requests in a row).`,
    data.against.map((comparison) => {
      const unit = runs[0].unit;
      const show = (d, value) => d.figure === "service_inversion" ? fixed(value) : inUnit(value, unit);
      const change = (d) => {
        if (!d.change) return words[d.verdict];
        const [low, high] = d.change.map((v) => (v > 0 ? "+" : "") + (d.figure === "service_inversion" ? fixed(v) : v.toFixed(1) + " %"));
        return make("span", { class: d.verdict === "higher" ? "mark" : null }, `${words[d.verdict]} (${low} to ${high})`);
      };
      return [make("h3", {}, `${comparison.run} against ${comparison.base}`), table([
        ["", (d) => ({ service_inversion: "service inversion", mean: "mean", ...Object.fromEntries(PERCENTS) })[d.figure]],
        ["before", (d) => show(d, d.base), "n"], ["now", (d) => show(d, d.value), "n"], ["", change]], comparison.differences)];
    }));
}

consider(data.runs || [data]);
start([heading, findings, against, latencies, tail, overTheRun, overLoads, inversion, () => deciles(), burstiness, causes]);
