// SPDX-License-Identifier: MIT OR Apache-2.0
// Numbers for people, and elements. Nothing here depends on the report.

// For tests, and for finding out why a plot is missing.
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
  addEventListener(kind, (event) => {
    document.documentElement.dataset.error = `${kind}: ${event.message || event.reason || event.violatedDirective}`;
  });
}

const data = JSON.parse(document.getElementById("data").textContent);

function time(ns) {
  if (ns === 0) return "0";
  const units = [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]];
  const sign = ns < 0 ? "-" : "";
  const size = Math.abs(ns);
  for (const [unit, length] of units) {
    const value = size / length;
    if (value >= 999.5 && unit !== "s") continue;
    if (unit === "ns") return sign + Math.round(value) + " ns";
    const decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    const text = decimals ? value.toFixed(decimals) : Math.round(value).toLocaleString("en");
    return `${sign}${text} ${unit}`;
  }
}

const count = (n) => n.toLocaleString("en");
const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
const percent = (part) => part > 0 && part < 0.0005 ? "< 0.1 %" : (100 * part).toFixed(part < 0.0995 ? 1 : 0) + " %";

const capital = (text) => text ? text[0].toUpperCase() + text.slice(1) : text;

// For axes: without insignificant digits.
function tick(ns) {
  return time(ns).replace(/(\.\d*?)0+ /, "$1 ").replace(/\. /, " ");
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

// Gives a place these elements, in this order. Those that are there already are not taken out, so they keep the focus.
function arrange(place, elements) {
  const stay = new Set(elements);
  for (const child of [...place.children]) if (!stay.has(child)) child.remove();
  let next = place.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else place.insertBefore(element, next);
  }
}

// The same as the anchors that findings name.
const anchor = (section, name) => `${section}-${String(name).replace(/[^A-Za-z0-9]/gu, "-")}`;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
