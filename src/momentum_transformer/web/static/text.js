// The view in which models continue a text side by side.

import { choices, chosen } from "./choices.js";
import { Work } from "./stream.js";
import { WrittenCard } from "./written.js";

const byId = (id) => document.getElementById(id);

export function setUpText({ writers, most_models: most, most_tokens: mostTokens }) {
  const work = new Work("/write", { status: byId("text-status"), stop: byId("stop-text") });
  const hint = byId("texts").firstElementChild;
  byId("prompt").value = writers[0].prompt;
  Object.assign(byId("tokens"), { max: mostTokens, value: 400 });
  byId("writers").replaceChildren(...choices(writers.map((model, position) => ({ model, position })), most));

  function showNumbers() {
    byId("tokens-value").textContent = byId("tokens").value;
    byId("text-temperature-value").textContent = Number(byId("text-temperature").value).toFixed(2);
  }

  async function write() {
    const asked = chosen(byId("writers"), most, work);
    if (asked.length === 0) return;
    if (!byId("text-seed").checkValidity()) {
      work.say("The seed must be a whole number from 0 to 2147483647.", { problem: true });
      return;
    }
    const prompt = byId("prompt").value;
    const tokens = Number(byId("tokens").value);
    const cards = new Map(asked.map((position) => [position, new WrittenCard(writers[position], { prompt, tokens })]));
    const made = [...cards.values()];
    byId("texts").replaceChildren(...made.map((card) => card.element));
    if (byId("texts").getBoundingClientRect().top > window.innerHeight - 120) byId("texts").scrollIntoView();
    const ask = {
      models: asked,
      prompt,
      tokens,
      temperature: Number(byId("text-temperature").value),
      seed: Number(byId("text-seed").value),
    };
    const received = () => {
      const bytes = made.flatMap((card) => card.states);
      if (bytes.length > 0) for (const card of made) card.drawState(Math.max(...bytes));
    };
    await work.run(ask, { meanwhile: "Writing …", cards, received });
    if (!made[0].element.isConnected) return; // a newer text has taken the place
    if (made.every((card) => !card.arrived && !card.reason)) byId("texts").replaceChildren(hint);
  }

  byId("text-controls").addEventListener("submit", (event) => {
    event.preventDefault();
    write();
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    write();
  });
  byId("new-text-seed").addEventListener("click", () => {
    byId("text-seed").value = crypto.getRandomValues(new Uint32Array(1))[0] % 100000;
  });
  for (const id of ["tokens", "text-temperature"]) byId(id).addEventListener("input", showNumbers);
  showNumbers();
}
