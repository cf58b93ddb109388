// Runs before the first paint, so that a page never flashes in the other theme.
const chosen = localStorage.getItem("tidemill.theme");
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
