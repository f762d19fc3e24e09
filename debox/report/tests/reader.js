// SPDX-License-Identifier: MIT OR Apache-2.0
// Uses the page as somebody with a keyboard does, and writes down what it shows.

{
const note = document.documentElement.dataset;
const at = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const press = (key, place = document.activeElement || document.body, more = {}) =>
  place.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
const flamePlot = () => at("#flame .plot");
const slept = () => {
  if (at("#flame .empty")) return at("#flame .empty").textContent;
  press("ArrowDown", flamePlot());
  return at("#flame .readout").textContent;
};
const rows = (section) => all(`#${section} tbody tr`);
const words = (text) => text.replace(/\s+/g, " ").trim();

note.slept = slept();
note.waits = rows("waits").length;

const cause = all("ul.causes button").find((one) => one.textContent.includes("inode lock"));
cause.click();
note.chip = words(at("#chips").textContent);
note.sleptOfCause = slept();
note.waitsOfCause = rows("waits").length;
note.callsOfCause = [...new Set(all("#slowest details.slow:not([hidden]) > summary > strong").map((one) => words(one.textContent)))].join();
note.linesOfCause = words(at("#over-time .legend").textContent);
press("Escape");
note.afterEscape = words(at("#chips").textContent);

rows("calls").find((row) => row.id === "call-mmap").querySelector("button").click();
note.sleptOfMmap = slept();
note.rowOfMmap = rows("calls").map((row) => words(row.querySelector("th").textContent)).join();
press("Escape");

const line = at("#over-time .plot");
for (let step = 0; step < 40; step += 1) press("ArrowRight", line);
press("Enter", line);
press("ArrowRight", line, { shiftKey: true });
note.timeChip = at("#chips").textContent.startsWith("time: ") && at("#over-time h3") !== null;
const ms = (text) => parseFloat(text.slice("all: ".length)) / (text.includes(" us, ") ? 1000 : 1);
const part = slept();
note.sleptInTime = ms(part) > 0 && ms(part) < 21 ? "less" : part;
press("Escape");

at("main").focus();
press("/");
note.search = document.activeElement.id;
at("#search").value = "(USER)";
at("#search").dispatchEvent(new Event("input"));
note.found = /^\d+ rows? match/.test(at("#found").textContent);
note.foundWaits = rows("waits").length;
press("Escape");

at("main").focus();
press("i");
note.sleptIdle = slept();
note.waitsIdle = rows("waits").length;
press("i");

press("j", document.body);
note.section = document.activeElement.tagName;
at('a[href="#slowest"]').click();
setTimeout(() => {
  note.linked = at("#slowest details.folded").open;
  press("?", document.body);
  note.keys = at("#help").open;
  const named = (one) => one.getAttribute("aria-label") || words(one.textContent) || (one.labels && [...one.labels].some((label) => words(label.textContent)));
  note.unnamed = all("button, input, select, a, [role=img], [role=group], [role=region]").filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 80)).join();
  const ids = all("[id]").map((one) => one.id);
  note.repeated = ids.filter((id, index) => ids.indexOf(id) !== index).join();
  note.landmarks = ["header", "nav", "main", "footer"].map((name) => all(`body > ${name}`).length).join();
  note.finished = "yes";
}, 200);
}
