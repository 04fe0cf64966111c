// What the theme leaves out for readers who use a keyboard or hear the page.
const mend = () => {
  // A box that scrolls is reached by the Tab key.
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) box.tabIndex = 0;
  // A copy button or a folded part of the contents is no place of its own on the page.
  for (const part of document.querySelectorAll(".md-code__nav, nav nav")) {
    part.setAttribute("role", "none");
    part.removeAttribute("aria-labelledby");
    part.removeAttribute("aria-expanded");
    part.removeAttribute("aria-label");
  }
  document.querySelector("nav.md-path")?.setAttribute("aria-label", "Path");
  // The corner of a table heads nothing.
  for (const head of document.querySelectorAll("th:empty")) head.replaceWith(document.createElement("td"));
};
mend();
// The theme adds its buttons and boxes when the page is read.
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
