// Repairs what the theme's own script makes after the page has loaded: a landmark around each copy button, and tables
// that scroll but cannot be reached with the keyboard.
function repair() {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    buttons.setAttribute("role", "presentation");
  }
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    table.tabIndex = 0;
  }
}

new MutationObserver(repair).observe(document.body, { childList: true, subtree: true });
repair();
