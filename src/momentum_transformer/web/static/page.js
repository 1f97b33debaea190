// The page: its views as tabs, and what the server has to show.
// A further view is one more tab and panel in index.html, and one more line here.

import { setUpPictures } from "./pictures.js";
import { setUpText } from "./text.js";
import { setUpTraining } from "./training.js";
import { setUpTranslation } from "./translation.js";
import { setUpWeights } from "./weights.js";

// how a view is set up, and which of the server's lists it cannot do without
const VIEWS = {
  pictures: [setUpPictures, "models"],
  translation: [setUpTranslation, "translators"],
  text: [setUpText, "writers"],
  training: [setUpTraining, null],
  weights: [setUpWeights, null],
};

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
  const useful = [];
  for (const [id, [setUp, needed]] of Object.entries(VIEWS)) {
    if (needed === null || description[needed].length > 0) {
      setUp(description);
      useful.push(`#${id}`);
    } else {
      for (const part of document.getElementById(id).children) part.hidden = !part.classList.contains("absent");
    }
  }
  if (!named(location.hash)) select(named(useful[0]));
} catch (error) {
  for (const status of document.querySelectorAll(".status[role]")) {
    status.textContent = `The server does not answer: ${error.message}`;
  }
}
