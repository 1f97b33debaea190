// The page: its views as tabs, and what the server has to show.
// A further view is one more tab and panel in index.html, and one more line here.

import { setUpPictures } from "./pictures.js";
import { setUpWeights } from "./weights.js";

const VIEWS = { pictures: setUpPictures, weights: setUpWeights };

const tabs = [...document.querySelectorAll('[role="tab"]')];

function select(tab, { focus = false } = {}) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
}

function named(hash) {
  return tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === hash);
}

for (const [position, tab] of tabs.entries()) {
  tab.addEventListener("click", () => {
    select(tab);
    history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  });
  tab.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -position, End: tabs.length - 1 - position };
    if (!(event.key in steps)) return;
    event.preventDefault();
    select(tabs[(position + steps[event.key] + tabs.length) % tabs.length], { focus: true });
  });
}
window.addEventListener("hashchange", () => select(named(location.hash) ?? tabs[0]));
select(named(location.hash) ?? tabs[0]);

try {
  const response = await fetch("/models");
  if (!response.ok) throw new Error(await response.text());
  const description = await response.json();
  for (const setUp of Object.values(VIEWS)) setUp(description);
} catch (error) {
  document.getElementById("status").textContent = `The server does not answer: ${error.message}`;
}
