// A table wider than the page scrolls; here by keyboard too, which the theme leaves out.
window.addEventListener("load", () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
});
