"use strict";
(() => {
  const text = (row, column) => row.cells[column].textContent.trim();

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
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([row]) => row));
  }

  // A page opened from a disk may lack the clipboard; then the old way, then a selection to copy by hand.
  async function copy(button) {
    const table = button.closest("figure").querySelector("table");
    // A spreadsheet that it is pasted into must not compute a text: an apostrophe before it, as in written tables.
    const harmless = (words) => (/^'*[=+\-@＝＋－＠]/.test(words) && Number.isNaN(Number(words)) ? `'${words}` : words);
    const clean = (cell) => harmless(cell.textContent.trim().replace(/[\t\n\r]+/g, " "));
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

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
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
