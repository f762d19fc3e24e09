// SPDX-License-Identifier: MIT OR Apache-2.0
// What the sections share: parts of the time and their colours, and what counts as idle.

const recording = data.recording;
const leftOut = (one) => one.budget.idle_ns + one.resting_ns;
// Time without idle waits and waits for work, as the findings count it.
const active = (one) => Math.max(0, one.budget.wall_ns - leftOut(one));
const PARTS = [
  ["on the CPU", "--cpu", (one) => one.budget.cpu_ns], ["interrupts", "--irq", (one) => one.budget.irq_ns || 0],
  ["waiting for a CPU", "--runqueue", (one) => one.budget.runqueue_ns], ["pushed off a CPU", "--preempted", (one) => one.budget.preempted_ns],
  ["blocked", "--disk", (one) => Math.max(0, one.budget.blocked_ns - leftOut(one))],
];
// Threads and processes also compute between calls.
const COMPUTING = ["computing between calls", "--c2", (one) => one.user_cpu_ns || 0];
const worked = (one) => active(one) + (one.user_cpu_ns || 0);
// Names come from outside, and `constructor` is one: these tables have nothing but what is in them.
const only = (entries) => Object.assign(Object.create(null), entries);
const CLASSES = only({
  "cpu in calls": "--cpu", "interrupts": "--irq", "waiting for a CPU": "--runqueue", "preempted": "--preempted",
  "blocked: disk": "--disk", "blocked: lock": "--lock", "blocked: memory": "--memory",
  "blocked: network": "--network", "blocked: process": "--process", "blocked: cpu": "--c7",
  "blocked: other": "--other", "blocked: not listed": "--c6", "blocked: idle": "--idle",
});
// Causes of the headline that are not labels of sleeps: their names, colours, and parts of the time line.
const CAUSES = only({
  "user CPU": ["computing in the program", "--c2", []], "kernel CPU": ["computing in the kernel", "--cpu", ["cpu in calls"]],
  "waiting for a CPU": ["waiting for a CPU", "--runqueue", ["waiting for a CPU", "preempted"]],
  "CPU quota": ["throttled by a CPU quota", "--preempted", ["waiting for a CPU", "preempted"]],
  "interrupts": ["interrupts", "--irq", ["interrupts"]], "outside": ["on the way to calls and back", "--c7", []],
  "asleep": ["asleep, reason unknown", "--other", ["blocked: not listed"]],
});
const classOf = new Map(data.matrix.labels.map((label) => [label.label, label.class]));
const causeName = (cause) => CAUSES[cause] ? CAUSES[cause][0] : cause;
const tintOf = (cause, of) => CAUSES[cause] ? CAUSES[cause][1] : CLASSES["blocked: " + (of || classOf.get(cause))] || "--other";
// Waits of parents.
const CHILDREN = ["child process", "vfork child"];
const isIdle = (label) => classOf.get(label) === "idle";
// A function is the same regardless of the offset and the line.
const functionOf = (frame) => frame.replace(/\+0x[0-9a-f]+/, "").replace(/ \([^()]*:\d+\)$/, "");
// Without long lists of arguments and of template parameters, as C++ has them. A space is before anything else in
// parentheses, such as the file and line.
function callerName(caller) {
  let name = caller || "";
  for (let at = 1; name.length > 48 && at < name.length; at += 1) {
    if (!"(<".includes(name[at]) || !/[\w>)]/.test(name[at - 1])) continue;
    let end = at;
    for (let depth = 0; end < name.length; end += 1) {
      if ("(<".includes(name[end])) depth += 1;
      else if (name[end] === ")" || (name[end] === ">" && name[end - 1] !== "-")) depth -= 1;
      if (depth === 0) break;
    }
    if (end < name.length && end - at > 12) name = `${name.slice(0, at + 1)}…${name.slice(end)}`;
    at = name.indexOf("…", at) === at + 1 ? at + 2 : at;
  }
  return name;
}

const commands = recording.commands.map((words) => words.join(" ")).filter(Boolean);

// What processes are called on their command lines: programs such as PostgreSQL say there what each is for.
const commandsOf = new Map(recording.processes.map((one) => [one.pid, one.title || one.command.join(" ")]));
const shortCommand = (words, most) => {
  const short = words.replace(/^\/\S*\//, "");
  return short.length > most ? short.slice(0, most) + " …" : short;
};
const processName = (pid) => shortCommand(commandsOf.get(pid) || "", 60);
// Whether several processes run the same program.
const programOf = (pid) => (commandsOf.get(pid) || "").split(" ")[0].split("/").at(-1);
const programs = new Map();
for (const pid of commandsOf.keys()) programs.set(programOf(pid), (programs.get(programOf(pid)) || 0) + 1);
const isOneOfSeveral = (pid) => programOf(pid) !== "" && programs.get(programOf(pid)) > 1;
// The name of a thread, with that of its process if it is the first thread of one of several of a program.
const threadName = (comm, tid, isMain) => `${comm} (${tid}${isMain && isOneOfSeveral(tid) ? `: ${processName(tid)}` : ""})`;

// Where most of the time is decides which flame graph comes first.
const shares = data.active ? data.active.shares : [];
const sumOf = (some) => some.reduce((sum, share) => sum + share.ns, 0);
const slept_ns = sumOf(shares.filter((share) => share.class !== null));
const computed_ns = sumOf(shares.filter((share) => share.cause === "user CPU" || share.cause === "kernel CPU"));
const onCpuFirst = Boolean(data.samples && data.samples.total) && computed_ns > slept_ns;

// The parts of one budget as a bar.
function bars(one, widest) {
  const parts = one.user_cpu_ns ? [COMPUTING, ...PARTS] : PARTS;
  return make("div", { class: "stack", role: "img", "aria-label": parts.map(([name, , of]) => `${name} ${time(of(one))}`).join(", ") },
    parts.map(([name, tint, of]) => {
      const part = of(one);
      return part > 0 ? make("i", { title: `${name}: ${time(part)}`, style: `width: ${100 * part / widest}%; background: var(${tint})` }) : null;
    }));
}

const partsLegend = (parts = PARTS) => make("div", { class: "legend" }, parts.map(([name, tint]) => make("span", {}, swatch(tint), " ", name)));
const swatch = (tint) => make("span", { class: "swatch", style: `background: var(${tint})` });

// The task that ended a wait, with what its process is called.
function wakerName(waker) {
  const tid = Number((/ \((\d+)\)$/.exec(waker) || [])[1]);
  return isOneOfSeveral(tid) ? `${waker.slice(0, -1)}: ${processName(tid)})` : waker;
}

// Who held waits up, by who woke whom: of one row, or of several.
function heldUpWords(...rows) {
  const whole = rows.reduce((sum, row) => sum + row.blocked_ns, 0);
  const tasks = new Map();
  rows.flatMap((row) => row.held_up_by).forEach((task) => {
    const known = tasks.get(task.tid) || { ...task, ns: 0 };
    tasks.set(task.tid, { ...known, ns: known.ns + task.ns });
  });
  const most = [...tasks.values()].sort((a, b) => b.ns - a.ns).filter((task) => task.ns >= whole * 0.05).slice(0, 3);
  const words = most.map((task) => `${threadName(task.comm, task.tid, true)} ${time(task.ns)}`);
  return words.length ? `${words.join(", ")} of ${time(whole)}` : "";
}

function ownerWords(wait) {
  if (!wait.owner_certainty) return "";
  if (!wait.owner_comm) return "not known";
  const who = wait.many_owners || wait.owner_tid === null ? `${wait.owner_comm} (several)` : `${wait.owner_comm} (${wait.owner_tid})`;
  return [who, wait.owner_certainty === "exact" ? null : wait.owner_certainty, wait.owner_doing].filter(Boolean).join(", ");
}

// Only the largest owner of each call is known.
function cpuOwnerWords(owner) {
  const process = `${owner.comm} (${owner.pid})`;
  const group = data.cpu_waits.group;
  switch (owner.kind) {
    case "task": return process;
    case "own": return `${process}, the waiting process itself`;
    case "kernel": return `${process} of the kernel`;
    case "idle": return "no task: the CPU was idle";
    case "quota": return `no task: ${group ? `the control group ${group}` : "a control group"} had used up its quota`;
    case "hidden": return "tasks of other users";
    case "stolen": return "no task: the hypervisor had the CPU";
    case "many": return "further processes";
    default: return "not known";
  }
}
