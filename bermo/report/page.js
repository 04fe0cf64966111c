"use strict";
(() => {
  const text = (row, column) => row.cells[column].textContent.trim();
  // The rows of a sorted table as they were: those are the places of its drawing.
  const ordered = new WeakMap();

  // Numbers by value, words by their letters; what is empty comes last either way.
  function sort(header) {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    const rows = [...body.rows].map((row) => [row, text(row, column)]);
    rows.sort(([, a], [, b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const x = Number(a), y = Number(b);
      const order = Number.isNaN(x) || Number.isNaN(y)
        ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
      return down ? -order : order;
    });
    if (!ordered.has(table)) ordered.set(table, [...body.rows]);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([row]) => row));
  }

  // A page opened from a disk may lack the clipboard; then the old way, then a selection to copy by hand.
  async function copy(button) {
    const table = button.closest("figure").querySelector("table");
    // A spreadsheet that it is pasted into must not compute a text: an apostrophe before it, as in written tables.
    const harmless = (words) => (/^'*[=+\-@＝＋－＠]/.test(words) && Number.isNaN(Number(words)) ? `'${words}` : words);
    const clean = (cell) => harmless(cell.textContent.trim().replace(/[\t\n\r\u00a0]+/g, " "));
    const lines = [...table.rows].map((row) => [...row.cells].map(clean).join("\t")).join("\n");
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(lines);
    } catch {
      const area = document.createElement("textarea");
      area.value = lines;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) {
        getSelection().selectAllChildren(table);
        said = "Selected: copy it with Ctrl+C";
      }
    }
    button.textContent = said;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  function reveal() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.matches("details")) target.open = true;
    if (target) target.scrollIntoView();
  }

  // A drawing's values under the pointer, or at the place that the arrow keys have moved to, told below it.
  function rowsOf(figure) {
    const table = figure.querySelector("table");
    return { names: [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()),
      rows: ordered.get(table) ?? [...table.tBodies[0].rows] };
  }

  function plotOf(svg) {
    const [kind, ...numbers] = svg.dataset.plot.split(" ");
    const [left, top, width, height, low, high] = numbers.map(Number);
    return { kind, left, top, width, height, low, high };
  }

  function nearest(rows, value) {
    let best = 0;
    rows.forEach((row, index) => {
      if (Math.abs(Number(text(row, 0)) - value) < Math.abs(Number(text(rows[best], 0)) - value)) best = index;
    });
    return best;
  }

  function placeAt(svg, event) {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal, plot = plotOf(svg);
    const x = (event.clientX - box.left) * view.width / box.width + view.x - plot.left;
    const y = (event.clientY - box.top) * view.height / box.height + view.y - plot.top;
    if (x < 0 || y < 0 || x >= plot.width || y >= plot.height) return null;
    const { names, rows } = rowsOf(svg.closest("figure"));
    if (!rows.length) return null;
    if (plot.kind === "heat") {
      return [Math.floor(y / plot.height * rows.length), Math.floor(x / plot.width * (names.length - 1)) + 1];
    }
    if (plot.kind === "bars") return [Math.floor(x / plot.width * rows.length), 0];
    return [nearest(rows, plot.low + x / plot.width * (plot.high - plot.low)), 0];
  }

  function tell(svg, place) {
    const figure = svg.closest("figure"), { names, rows } = rowsOf(figure), line = figure.querySelector(".values");
    if (!place || !rows[place[0]]) { line.textContent = ""; return; }
    const row = rows[place[0]], [, column] = place, hidden = figure.hiddenSeries ?? new Set();
    const said = plotOf(svg).kind === "heat"
      ? [`${names[0]} ${text(row, 0)}, ${names[column]}: ${text(row, column) || "–"}`]
      : names.slice(1).map((name, index) => [name, text(row, index + 1)])
        .filter(([name, value]) => value !== "" && !hidden.has(name.replace(/, (low|high)$/, "")))
        .map(([name, value]) => `${name} ${value}`);
    line.textContent = plotOf(svg).kind === "heat" ? said[0] : `${names[0]} ${text(row, 0)}: ${said.join("; ")}`;
    figure.place = place;
  }

  function move(svg, event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!steps) return;
    const figure = svg.closest("figure"), { names, rows } = rowsOf(figure), isHeat = plotOf(svg).kind === "heat";
    const [row, column] = figure.place ?? (isHeat ? [0, 1] : [0, 0]);
    const within = (value, low, high) => Math.max(low, Math.min(high, value));
    const started = figure.place !== undefined;
    const [down, across] = started ? steps : [0, 0];
    tell(svg, isHeat
      ? [within(row + down, 0, rows.length - 1), within(column + across, 1, names.length - 1)]
      : [within(row + down + across, 0, rows.length - 1), 0]);
    event.preventDefault();
  }

  function hide(button) {
    const figure = button.closest("figure"), isShown = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!isShown));
    figure.hiddenSeries ??= new Set();
    figure.hiddenSeries[isShown ? "add" : "delete"](button.textContent);
    for (const group of figure.querySelectorAll("g[data-series]")) {
      group.toggleAttribute("hidden", figure.hiddenSeries.has(group.dataset.series));
    }
  }

  function addButtons(figure) {
    // Bands are drawn below all lines, so that the last place of a name is its place in the legend.
    const drawn = [...figure.querySelectorAll("g[data-series]")].map((group) => group.dataset.series);
    const names = [...new Set(drawn.reverse())].reverse();
    if (names.length < 2) return;
    const line = document.createElement("p");
    line.className = "series";
    for (const name of names) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "toggle";
      button.textContent = name;
      button.setAttribute("aria-pressed", "true");
      line.append(button);
    }
    figure.querySelector(".values").after(line);
  }

  for (const svg of document.querySelectorAll("svg[data-plot]")) {
    const figure = svg.closest("figure");
    svg.addEventListener("pointermove", (event) => tell(svg, placeAt(svg, event)));
    svg.addEventListener("pointerleave", () => tell(svg, null));
    svg.parentElement.addEventListener("keydown", (event) => move(svg, event));
    addButtons(figure);
  }
  for (const figure of document.querySelectorAll("figure:has(svg:not([data-plot]))")) addButtons(figure);

  // What goes on beyond its right edge has a shadow there.
  const hint = (part) => part.classList.toggle("more", part.scrollWidth - part.clientWidth - part.scrollLeft > 8);
  const sizes = new ResizeObserver((changed) => changed.forEach(({ target }) => hint(target)));
  for (const part of document.querySelectorAll(".scroll, .drawing")) {
    sizes.observe(part);
    part.addEventListener("scroll", () => hint(part), { passive: true });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches(".toggle")) hide(button);
    if (button?.parentElement.matches("th")) sort(button.parentElement);
    if (button?.matches(".copy")) copy(button);
    const link = event.target.closest("nav a");
    if (link && link.hash === location.hash) reveal();
  });
  const parts = document.querySelectorAll(".part");
  if (matchMedia("(max-width: 40rem)").matches) {
    parts.forEach((part, index) => { part.open = index === 0; });
  }
  for (const button of document.querySelectorAll(".copy")) button.setAttribute("aria-live", "polite");
  addEventListener("beforeprint", () => parts.forEach((part) => { part.open = true; }));
  addEventListener("hashchange", reveal);
  reveal();
})();
