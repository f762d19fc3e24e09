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
const rowOf = (call) => at(`#call-${call} button`);
const words = (text) => text.replace(/\s+/g, " ").trim();

note.slept = slept();
note.waits = rows("waits").length;

const cause = all("ul.causes button").find((one) => one.textContent.includes("inode lock"));
// What is pressed keeps the focus.
const enter = (button) => { button.focus({ preventScroll: true }); button.click(); return document.activeElement === button; };
note.causeFocus = enter(cause) && cause.getAttribute("aria-pressed") === "true";
note.chip = words(at("#chips").textContent);
note.sleptOfCause = slept();
note.waitsOfCause = rows("waits").length;
note.callsOfCause = [...new Set(all("#slowest details.slow:not([hidden]) > summary > strong").map((one) => words(one.textContent)))].join();
note.linesOfCause = words(at("#over-time .legend").textContent);
press("Escape");
note.afterEscape = words(at("#chips").textContent);

const mmap = rowOf("mmap");
note.rowFocus = enter(mmap);
note.sleptOfMmap = slept();
note.rowOfMmap = rows("calls").map((row) => words(row.querySelector("th").textContent)).join();
press("Escape");
note.rowFocusAfter = document.activeElement === mmap && rows("calls").length === 3;

// A chip is gone when it is pressed: the focus goes to the next one, and then to the bar.
cause.click();
mmap.click();
const [first, second] = all(".chip");
enter(first);
note.chipFocus = document.activeElement === second;
enter(second);
note.barFocus = document.activeElement.id;

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
// The links of findings lead somewhere whatever is selected. A change of the address is an event of its own.
const follow = (link, then) => { at(link).click(); setTimeout(then, 200); };
follow('a[href="#slowest"]', () => {
  note.linked = at("#slowest details.folded").open;
  mmap.click();
  note.waitsOfMmap = rows("waits").length;
  follow('.findings a[href^="#wait-"]', showsWait);
});

function showsWait() {
  note.waitOfLink = rows("waits").map((row) => row.classList.contains("here")).join();
  note.saysWhy = at("#waits .rows:not([hidden])")?.textContent.includes("does not; it is shown because");
  press("Escape");
  note.waitsAfterLink = rows("waits").length;
  rowOf("openat").click();
  note.trendIsHidden = at("#trend-mmap").hidden;
  follow('.findings a[href="#trend-mmap"]', showsTrend);
}

function showsTrend() {
  note.trendOfLink = !at("#trend-mmap").hidden && at("#trend-mmap canvas") !== null;
  press("Escape");
  press("?", document.body);
  note.keys = at("#help").open;
  const named = (one) => one.getAttribute("aria-label") || words(one.textContent) || (one.labels && [...one.labels].some((label) => words(label.textContent)));
  note.unnamed = all("button, input, select, a, [role=img], [role=group], [role=region]").filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 80)).join();
  const ids = all("[id]").map((one) => one.id);
  note.repeated = ids.filter((id, index) => ids.indexOf(id) !== index).join();
  note.landmarks = ["header", "nav", "main", "footer"].map((name) => all(`body > ${name}`).length).join();
  // Plots fit the paper while the page is printed, and the window after that.
  const widest = () => Math.max(...all(".plot canvas, .plot svg").map((one) => one.getBoundingClientRect().width));
  const onScreen = widest();
  dispatchEvent(new Event("beforeprint"));
  note.onPaper = widest() > 500 && widest() <= 680 && Number(at("#flame .frame rect").getAttribute("width")) > 500;
  dispatchEvent(new Event("afterprint"));
  note.afterPaper = onScreen > 700 && widest() === onScreen;
  note.finished = "yes";
}
}
