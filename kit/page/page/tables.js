// SPDX-License-Identifier: MIT OR Apache-2.0
// Tables: ten rows first, the others on request; sorted by any column; searched.

const ROWS = 10;
const tables = [];
// What is searched for, in lower case.
let wanted = "";
// Whether a page shows a part of its rows only, in addition to the search.
let isNarrowed = () => false;

const textOf = (content) => content === null || content === undefined ? ""
  : Array.isArray(content) ? content.map(textOf).join(" ")
  : content instanceof Node ? content.textContent : String(content);

// `all`: columns, as [head, function that returns a cell's content, "n" for numbers, "long" for text, "short" for text
// in one line, function that returns what the column is sorted by]. Columns in which all rows are empty are left out.
// `options`: `id` names rows; `shows` selects rows; `limit` is the number of rows at first; `caption` is the table's name
// for people who do not see it; `pick` is called when a row is chosen.
function table(all, rows, options = {}) {
  const isEmpty = (content) => !(content instanceof Node) && textOf(content) === "";
  const columns = all.filter(([, cell], at) => at === 0 || rows.length > 200 || !rows.every((row, index) => isEmpty(cell(row, index))));
  const limit = options.limit || ROWS;
  const texts = rows.map(() => null);
  const cells = rows.map(() => null);
  // The rows that were shown so far: they stay the same elements, so a button in one keeps the focus.
  const lines = rows.map(() => null);
  const of = (at) => cells[at] || (cells[at] = columns.map(([, cell]) => cell(rows[at], at)));
  const text = (at) => texts[at] === null ? (texts[at] = of(at).map(textOf).join(" ").toLowerCase()) : texts[at];
  let order = rows.map((_, at) => at);
  let sorted = null;
  let whole = false;
  // The row that a link leads to. It is shown until the search, the selection or the link changes, even if it does not
  // fit.
  let keep = null;
  const head = columns.map(([name, , kind, by], column) => {
    const th = make("th", { scope: "col", class: kind === "n" ? "n" : null });
    if (by && rows.length > 2) th.append(make("button", { type: "button", class: "sort", title: `Sort by ${name}`, onclick: () => sort(column) }, name));
    else th.append(name);
    return th;
  });
  const body = make("tbody", {});
  const more = make("button", { type: "button", class: "more", onclick: () => { whole = !whole; update(); } });
  const note = make("p", { class: "quiet rows", role: "status" });
  function sort(column) {
    const by = columns[column][3];
    const down = sorted && sorted[0] === column ? -sorted[1] : typeof by(rows[0]) === "string" ? 1 : -1;
    sorted = [column, down];
    const value = (at) => by(rows[at], at);
    order.sort((a, b) => { const [x, y] = [value(a), value(b)]; return (x < y ? -1 : x > y ? 1 : 0) * down || a - b; });
    head.forEach((th, at) => { if (at === column) th.setAttribute("aria-sort", down > 0 ? "ascending" : "descending"); else th.removeAttribute("aria-sort"); });
    update();
  }
  function row(at) {
    const line = make("tr", { id: options.id ? options.id(rows[at], at) : null, class: options.pick ? "pick" : null },
      of(at).map((content, column) => {
        const kind = columns[column][2];
        if (column) return make("td", { class: kind }, content);
        return make("th", { scope: "row", class: kind }, options.pick
          ? make("button", { type: "button", class: "link", title: "Show only this", onclick: () => options.pick(rows[at]) }, content) : content);
      }));
    return line;
  }
  const fits = (at) => (!options.shows || options.shows(rows[at])) && (!wanted || text(at).includes(wanted));
  function update() {
    const left = order.filter(fits);
    // One or two rows are not worth a button.
    const most = whole || left.length <= limit + 2 ? left.length : limit;
    const first = new Set(left.slice(0, most));
    const shown = order.filter((at) => first.has(at) || at === keep);
    arrange(body, shown.map((at) => lines[at] || (lines[at] = row(at))));
    place.dataset.matches = left.length;
    // Paper has no button.
    place.dataset.unprinted = left.length > most ? `${counted(left.length - most, "more row")} ${left.length - most === 1 ? "is" : "are"} not printed.` : "";
    more.hidden = left.length <= limit + 2;
    more.textContent = whole ? `Show ${limit} rows` : `Show all ${count(left.length)} rows`;
    more.setAttribute("aria-expanded", String(whole));
    const hidden = rows.length - left.length;
    const isExtra = keep !== null && !fits(keep);
    note.textContent = (left.length ? `${count(left.length)} of ${count(rows.length)} rows fit.` : "No row fits.") +
      (isExtra ? " The row with the outline does not; it is shown because you followed a link to it." : "");
    note.hidden = !hidden || !(wanted || isNarrowed() || isExtra);
  }
  // Shows the row with an id, if the table has one.
  function show(id) {
    const before = keep;
    keep = names.has(id) ? names.get(id) : null;
    if (keep === before) return;
    whole = whole || (keep !== null && fits(keep) && !body.contains(lines[keep]));
    update();
  }
  const place = make("div", { class: "table" },
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption || "Table" },
      make("table", {}, options.caption ? make("caption", { class: "unseen" }, options.caption) : null, make("thead", {}, make("tr", {}, head)), body)),
    more, note);
  const names = options.id ? new Map(rows.map((one, at) => [options.id(one, at), at])) : new Map();
  tables.push({ place, update, show, forget: () => { keep = null; } });
  update();
  return place;
}

// After the search or the selection has changed. Tables that the page has replaced are forgotten.
function updateTables() {
  for (const one of [...tables]) {
    if (one.place.isConnected) one.wasShown = true;
    if (one.wasShown && !one.place.isConnected) { tables.splice(tables.indexOf(one), 1); continue; }
    one.forget();
    one.update();
  }
}

// A table that is built when it is opened.
function later(summary, build) {
  const details = make("details", { class: "later" }, make("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(build());
  });
  return details;
}
