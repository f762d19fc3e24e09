// What every page has: sections, light and dark colours, and the order in which the page is built.

const main = document.getElementById("main");
const contents = document.getElementById("contents");
// Colours that distinguish lines.
const LINES = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];

function section(id, title, sentence, ...children) {
  contents.append(make("a", { href: "#" + id }, title));
  main.append(make("section", { id }, make("h2", {}, title), sentence ? make("p", {}, sentence) : null, children));
}

function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
  };
  set(location.hash === "#dark" || system.matches);
  button.addEventListener("click", () => { set(document.documentElement.dataset.theme !== "dark"); drawAll(true); });
  system.addEventListener("change", () => { set(system.matches); drawAll(true); });
}

// Draws the sections, and marks the page as complete.
function start(sections) {
  theme();
  sections.forEach((draw) => draw());
  drawAll(true);
  // A finding's row does not exist before this point.
  if (location.hash.length > 1 && document.getElementById(location.hash.slice(1))) document.getElementById(location.hash.slice(1)).scrollIntoView();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => drawAll(false), 150); });
  document.documentElement.dataset.done = "yes";
}
