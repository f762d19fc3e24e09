// SPDX-License-Identifier: MIT OR Apache-2.0
// The time by process, and by unit or container.

function groups() {
  const { by_process: processes, by_unit: units } = data;
  if (processes.rows.length + processes.left_out < 2) return;
  const isSeveral = units.rows.length + units.left_out > 1;
  const blocked = (g) => Math.max(0, g.budget.blocked_ns - leftOut(g));
  const waits = (g) => g.budget.runqueue_ns + g.budget.preempted_ns;
  const causes = (g) => g.causes.map((cause) => `${cause.label} ${time(cause.blocked_ns)}`).join(", ");
  const worked = (g) => active(g) > 0;
  const columns = (rows) => {
    const widest = Math.max(1, ...rows.map(active));
    return [["", (g) => bars(g, widest), "bars"], ["time", (g) => time(active(g)), "n", active], ["threads", (g) => count(g.threads), "n", (g) => g.threads],
      ["calls", (g) => count(g.calls), "n", (g) => g.calls], ["CPU in calls", (g) => time(g.budget.cpu_ns), "n", (g) => g.budget.cpu_ns],
      ["blocked", (g) => time(blocked(g)), "n", blocked], ["waits for a CPU", (g) => time(waits(g)), "n", waits],
      ["idle", (g) => time(leftOut(g)), "n", leftOut], ["waited for", causes, "long", causes]];
  };
  const left = (of) => of.left_out ? make("p", { class: "quiet" }, `${count(of.left_out)} more with less time.`) : null;
  const first = processes.rows[0];
  const unnamed = recording.processes_left_out;
  folded("groups", isSeveral ? "By process, unit and container" : "By process", `${count(processes.rows.length + processes.left_out)} processes; most time: ${first.name.slice(0, 60)}, ${time(active(first))}`,
    "Time in calls, and off the CPU between them, without idle waits and waits for work.",
    unnamed ? make("p", { class: "quiet" }, `The recording had no room for the names of ${counted(unnamed, "program")}, the last that began. Their processes are called as their threads are, and their units and containers are not known.`) : null,
    partsLegend(), unfiltered(),
    isSeveral ? [make("h3", {}, "Units and containers"),
      table([["unit or container", (g) => g.name, "long", (g) => g.name], ["processes", (g) => count(g.processes), "n", (g) => g.processes], ...columns(units.rows)],
        units.rows, { caption: "Units and containers by time", shows: (g) => withIdle || worked(g) }), left(units), make("h3", {}, "Processes")] : null,
    table([["process", (g) => `${g.name.length > 80 ? g.name.slice(0, 80) + " …" : g.name} (${g.pid})`, "long", (g) => g.name],
      ["inside", (g) => g.inner_pid === null ? "" : String(g.inner_pid), "n", (g) => g.inner_pid || 0], ["unit or container", (g) => isSeveral ? g.place || "" : "", "long", (g) => g.place || ""],
      ...columns(processes.rows)], processes.rows, { caption: "Processes by time", shows: (g) => withIdle || worked(g) }), left(processes));
}
