// SPDX-License-Identifier: MIT OR Apache-2.0
// What is selected. A selection in one section filters all of them; each section says what it cannot be filtered by.

// `from` and `to`: nanoseconds since the time line begins. `frame`: a function in the stack.
const chosen = { call: null, cause: null, thread: null, frame: null, from: null, to: null };
const DIMENSIONS = {
  call: ["call", () => chosen.call], cause: ["cause", () => causeName(chosen.cause)], thread: ["thread", () => chosen.thread],
  frame: ["in a stack with", () => chosen.frame], from: ["time", () => `${time(chosen.from)} to ${time(chosen.to)}`],
};
let withIdle = false;
const reactions = [];
let begun = false;

function set(change) {
  Object.assign(chosen, change);
  if (chosen.from === null) chosen.to = null;
  changed();
}

// Selects, or deselects all of it if it is selected already.
function choose(change) {
  const has = Object.entries(change).every(([name, value]) => chosen[name] === value);
  set(has ? Object.fromEntries(Object.keys(change).map((name) => [name, null])) : change);
}

// A button for each dimension, which deselects it.
const chips = Object.fromEntries(Object.keys(DIMENSIONS).map((name) => [name, make("button", { type: "button", class: "chip", onclick: () => choose({ [name]: chosen[name] }) })]));

function showChips() {
  const place = document.getElementById("chips");
  const at = [...place.children].indexOf(document.activeElement);
  const shown = Object.entries(DIMENSIONS).filter(([name]) => chosen[name] !== null).map(([name, [what, value]]) => {
    chips[name].textContent = `${what}: ${value()} ×`;
    chips[name].setAttribute("aria-label", `Deselect ${what} ${value()}`);
    return chips[name];
  });
  arrange(place, shown);
  // The chip that was pressed is gone: the focus goes to the one in its place, or to the bar.
  if (at >= 0 && !shown.includes(document.activeElement)) (shown[Math.min(at, shown.length - 1)] || document.getElementById("bar")).focus({ preventScroll: true });
}

function changed() {
  showChips();
  if (!begun) return;
  reactions.forEach((act) => act());
  updateTables();
}

function clearChoice() {
  const had = isNarrowed();
  for (const name of Object.keys(chosen)) chosen[name] = null;
  if (had) changed();
  return had;
}

// Says which part of the selection a section does not follow. `applied`: the dimensions that it follows.
function unfiltered(...applied) {
  const note = make("p", { class: "quiet note", hidden: true });
  reactions.push(() => {
    const left = Object.entries(DIMENSIONS).filter(([name]) => chosen[name] !== null && !applied.includes(name)).map(([, [what]]) => what === "in a stack with" ? "function" : what);
    note.hidden = !left.length;
    note.textContent = left.length ? `Not filtered by the selected ${left.join(" and ")}: these figures are of the whole recording.` : "";
  });
  return note;
}

// The time line's begin in the times of single calls, and in slices of the flame graph.
const { timeline, flame: sleepsGraph } = data;
const offset_ns = timeline.parts.length ? timeline.begin_ns - recording.begin_ns : 0;
const SLICE = sleepsGraph.slice_ns || 1;
const firstSlice = timeline.bin_ns ? Math.round((timeline.begin_ns - sleepsGraph.slices_begin_ns) / timeline.bin_ns) * timeline.bin_ns : 0;
const GRID = Math.max(SLICE, timeline.bin_ns || 1);

// Makes a selected time begin and end with a slice, for all sections to show the same time.
function chooseTime(from, to) {
  const low = Math.floor((from + firstSlice) / GRID) * GRID - firstSlice;
  const high = Math.ceil((to + firstSlice) / GRID) * GRID - firstSlice;
  const end = timeline.parts[0].ns.length * timeline.bin_ns;
  chosen.from = Math.max(0, low);
  chosen.to = Math.min(end, Math.max(high, low + GRID));
  changed();
}

const isLabel = (cause) => classOf.has(cause);
const inTime = (begin, end) => chosen.from === null || (begin - offset_ns < chosen.to && end - offset_ns > chosen.from);
const hasFrame = (frames) => chosen.frame === null || frames.some((frame) => functionOf(frame) === chosen.frame);

// A call that slept for several causes has several labels.
function fits({ call, labels, thread, frames, begin, end, waited }) {
  if (chosen.call !== null && call !== chosen.call) return false;
  if (chosen.cause !== null && labels && (isLabel(chosen.cause) ? !labels.includes(chosen.cause) : waited && !waited(chosen.cause))) return false;
  if (chosen.thread !== null && thread !== chosen.thread) return false;
  return hasFrame(frames) && inTime(begin, end);
}

function listenToSelection() {
  begun = true;
  isNarrowed = () => Object.values(chosen).some((value) => value !== null);
  const box = make("input", { type: "checkbox", id: "with-idle", onchange: () => { withIdle = box.checked; changed(); } });
  document.getElementById("tools").append(make("label", {}, box, "with idle and resting threads"));
  const none = () => {};
  keys.push(["i", "show or fold idle and resting threads", () => box.click()],
    ["\u2190 \u2192", "on the time line: move, with Shift select; Enter selects what is there", none],
    ["\u2190 \u2191 \u2192 \u2193", "in a flame graph: go to a frame; Enter selects it", none]);
  undoes.push(clearChoice);
}
