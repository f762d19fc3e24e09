// SPDX-License-Identifier: MIT OR Apache-2.0
// The time by process, and by unit or container.

function groups() {
  const { by_process: processes, by_unit: units } = data;
  if (processes.rows.length + processes.left_out < 2) return;
  const isSeveral = units.rows.length + units.left_out > 1;
  // CPU time between calls is known of threads.
  const computed = new Map();
  for (const thread of data.threads) computed.set(thread.pid, (computed.get(thread.pid) || 0) + (thread.user_cpu_ns || 0));
  const isKnown = !data.threads_left_out && data.threads.every((thread) => thread.user_cpu_ns !== null);
  // What children did counts, not that their parents waited for them.
  const forChildren = (g) => g.causes.reduce((sum, cause) => sum + (CHILDREN.includes(cause.label) ? cause.blocked_ns : 0), 0);
  const ofGroups = (rows) => rows.map((g) => ({ ...g, resting_ns: g.resting_ns + forChildren(g), user_cpu_ns: isKnown && g.pid ? computed.get(g.pid) || 0 : null }))
    .sort((a, b) => worked(b) - worked(a));
  const blocked = (g) => Math.max(0, g.budget.blocked_ns - leftOut(g));
  const waits = (g) => g.budget.runqueue_ns + g.budget.preempted_ns;
  const causes = (g) => g.causes.map((cause) => `${cause.label} ${time(cause.blocked_ns)}`).join(", ");
  const cpu = (g) => g.budget.cpu_ns + (g.user_cpu_ns || 0);
  const columns = (rows) => {
    const widest = Math.max(1, ...rows.map(worked));
    return [["", (g) => bars(g, widest), "bars"], ["time", (g) => time(worked(g)), "n", worked], ["threads", (g) => count(g.threads), "n", (g) => g.threads],
      ["calls", (g) => count(g.calls), "n", (g) => g.calls], [rows.every((g) => g.user_cpu_ns === null) ? "CPU in calls" : "CPU", (g) => time(cpu(g)), "n", cpu],
      ["blocked", (g) => time(blocked(g)), "n", blocked], ["waits for a CPU", (g) => time(waits(g)), "n", waits],
      ["idle", (g) => time(leftOut(g)), "n", leftOut], ["waited for", causes, "long", causes]];
  };
  const ofProcesses = ofGroups(processes.rows);
  const ofUnits = ofGroups(units.rows);
  const left = (of) => of.left_out ? make("p", { class: "quiet" }, `${count(of.left_out)} more with less time.`) : null;
  const first = ofProcesses[0];
  const unnamed = recording.processes_left_out;
  folded("groups", isSeveral ? "By process, unit and container" : "By process", `${count(processes.rows.length + processes.left_out)} processes; most time: ${shortCommand(first.name, 60)}, ${time(worked(first))}`,
    `Time in calls and off the CPU between them${isKnown ? ", and computing between them" : ""}, without idle waits, waits for work, and waits for child processes.`,
    unnamed ? make("p", { class: "quiet" }, `The recording had no room for the names of ${counted(unnamed, "program")}, the last that began. Their processes are called as their threads are, and their units and containers are not known.`) : null,
    partsLegend(isKnown ? [COMPUTING, ...PARTS] : PARTS), unfiltered(),
    isSeveral ? [make("h3", {}, "Units and containers"),
      table([["unit or container", (g) => g.name, "long", (g) => g.name], ["processes", (g) => count(g.processes), "n", (g) => g.processes], ...columns(ofUnits)],
        ofUnits, { caption: "Units and containers by time", shows: (g) => withIdle || worked(g) > 0 }), left(units), make("h3", {}, "Processes")] : null,
    table([["process", (g) => `${shortCommand(g.name, 80)} (${g.pid})`, "long", (g) => g.name],
      ["inside", (g) => g.inner_pid === null ? "" : String(g.inner_pid), "n", (g) => g.inner_pid || 0], ["unit or container", (g) => isSeveral ? g.place || "" : "", "long", (g) => g.place || ""],
      ...columns(ofProcesses)], ofProcesses, { caption: "Processes by time", shows: (g) => withIdle || worked(g) > 0 }), left(processes));
}
