// SPDX-License-Identifier: MIT OR Apache-2.0
// What every page has: sections, the search, keys, light and dark colours, and the order in which the page is built.

const main = document.getElementById("main");
const contents = document.getElementById("contents");
// Colours that distinguish lines.
const LINES = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];

// What sections are called in the list of sections, if not by their titles.
const shortTitles = {};

function section(id, title, sentence, ...children) {
  contents.append(make("a", { href: "#" + id }, shortTitles[id] || title));
  const head = make("h2", { id: "of-" + id }, title);
  const made = make("section", { id, "aria-labelledby": "of-" + id }, head, sentence ? make("p", {}, sentence) : null, children);
  main.append(made);
  return made;
}

// A section of which only the title and `summary` are shown at first.
function folded(id, title, summary, sentence, ...children) {
  contents.append(make("a", { href: "#" + id }, shortTitles[id] || title));
  const details = make("details", { class: "folded" },
    make("summary", {}, make("h2", { id: "of-" + id }, title), summary ? make("span", { class: "quiet" }, summary) : null),
    sentence ? make("p", {}, sentence) : null, children);
  // Plots have no width before they are shown.
  details.addEventListener("toggle", () => { if (details.open) drawAll(false); });
  const made = make("section", { id, "aria-labelledby": "of-" + id }, details);
  main.append(made);
  return made;
}

// The element that a link led to last.
let marked = null;

// Shows the element with an id: opens what it is folded into, and the table that has it as a row. A selection does not
// hide it.
function openTo(id) {
  tables.forEach((one) => one.show(id));
  const found = document.getElementById(id);
  if (!found) return;
  const hidden = found.closest("[hidden]");
  if (hidden) hidden.hidden = false;
  const inside = found.querySelector(":scope > details.folded");
  if (inside) inside.open = true;
  for (let at = found.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  drawAll(false);
  found.scrollIntoView({ block: "start" });
  if (marked) marked.classList.remove("here");
  marked = found;
  if (!found.matches("section")) found.classList.add("here");
}

// Keys: [key, what it does, function]. Pages add their own.
const keys = [
  ["/", "search; Enter goes to the tables that match, one after the other", () => document.getElementById("search").focus()],
  ["j", "go to the next section", () => goBy(1)],
  ["k", "go to the section before", () => goBy(-1)],
  ["d", "light or dark", () => document.getElementById("theme").click()],
  ["?", "show these keys", () => document.getElementById("keys").click()],
];
// What Escape undoes, the last first, as functions that return whether there was anything.
const undoes = [];

function goBy(step) {
  const sections = [...main.querySelectorAll(":scope > section")];
  // The topmost section whose head is not above the window.
  const at = sections.findLastIndex((one) => one.getBoundingClientRect().top < 120);
  const to = sections[Math.max(0, Math.min(sections.length - 1, at + step))];
  if (!to) return;
  to.scrollIntoView({ block: "start" });
  // A folded section is opened by its summary.
  const head = to.querySelector(":scope > details.folded > summary") || to.querySelector("h2");
  if (head.tagName === "H2") head.tabIndex = -1;
  head.focus({ preventScroll: true });
}

function listen() {
  const dialog = document.getElementById("help");
  document.getElementById("keys").addEventListener("click", () => {
    dialog.querySelector("dl").replaceChildren(...keys.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)]),
      make("dt", {}, make("kbd", {}, "Esc")), make("dd", {}, "undo the search or the selection"));
    dialog.showModal();
  });
  addEventListener("keydown", (event) => {
    const writes = event.target.matches("input[type=search], select, textarea");
    if (event.key === "Escape" && !dialog.open) {
      if (undoes.findLast((undo) => undo())) event.preventDefault();
      if (writes) event.target.blur();
      return;
    }
    if (writes || dialog.open || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const found = keys.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
  const input = document.getElementById("search");
  input.addEventListener("input", () => search(input.value));
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); showMatch(); } });
  undoes.push(() => { const had = wanted !== ""; input.value = ""; if (had) search(""); return had; });
  addEventListener("hashchange", () => openTo(location.hash.slice(1)));
  // A link to the place where the page is already changes no address.
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) openTo(location.hash.slice(1));
  });
}

// What happens on a search, in addition to the tables.
const searches = [];

// Tables with matches, one after the other.
let lastMatch = -1;
function showMatch() {
  const places = tables.map((one) => one.place).filter((place) => place.isConnected && Number(place.dataset.matches) > 0);
  if (wanted === "" || !places.length) return;
  lastMatch = (lastMatch + 1) % places.length;
  const place = places[lastMatch];
  for (let at = place.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  drawAll(false);
  place.scrollIntoView({ block: "center" });
}

function search(text) {
  wanted = text.trim().toLowerCase();
  lastMatch = -1;
  updateTables();
  searches.forEach((act) => act(wanted));
  const rows = tables.reduce((sum, one) => sum + (one.place.isConnected ? Number(one.place.dataset.matches) : 0), 0);
  document.getElementById("found").textContent = wanted ? `${count(rows)} ${rows === 1 ? "row matches" : "rows match"}${rows ? "; Enter shows them" : ""}` : "";
  // Folded sections with matches say so.
  for (const details of main.querySelectorAll("details.folded")) {
    const here = [...details.querySelectorAll(".table")].reduce((sum, one) => sum + Number(one.dataset.matches), 0);
    details.classList.toggle("matches", wanted !== "" && here > 0);
  }
}

function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
  };
  const isDark = () => document.documentElement.dataset.theme === "dark";
  set(location.hash === "#dark" || system.matches);
  button.addEventListener("click", () => { set(!isDark()); drawAll(true); });
  system.addEventListener("change", () => { set(system.matches); drawAll(true); });
  // Paper is light, and narrower than most windows: plots do not shrink by themselves.
  let before = false;
  const print = (onPaper) => {
    if (onPaper) before = isDark();
    if (before) set(!onPaper);
    document.body.classList.toggle("paper", onPaper);
    drawAll(before);
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}

// Marks the section that is being read in the list of sections.
function follow() {
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  main.querySelectorAll(":scope > section").forEach((one) => seen.observe(one));
}

// Draws the sections, and marks the page as complete.
function start(sections) {
  theme();
  listen();
  sections.forEach((draw) => draw());
  drawAll(true);
  follow();
  // A finding's row does not exist before this point.
  if (location.hash.length > 1) openTo(location.hash.slice(1));
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => drawAll(false), 150); });
  document.documentElement.dataset.done = "yes";
}
