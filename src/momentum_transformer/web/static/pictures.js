// The view in which models complete a picture side by side.

import { Card } from "./card.js";
import { Sketch, paint } from "./sketch.js";

const byId = (id) => document.getElementById(id);
const viewer = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function setUpPictures({ models, examples, most_models: most }) {
  let example = null; // the test image that the sketch shows, if any
  let drawing = null; // aborts what is being drawn
  const sketch = new Sketch(byId("sketch"), {
    position: byId("sketch-position"),
    onChange: () => {
      example = null;
      mark();
    },
  });

  const subjects = [...new Set(models.map((model) => model.subject))];
  byId("subject").replaceChildren(...subjects.map((subject) => new Option(subject)));
  byId("subject-field").hidden = subjects.length < 2;
  byId("subject").addEventListener("change", chooseSubject);

  function chooseSubject() {
    const subject = byId("subject").value;
    const first = models.find((model) => model.subject === subject);
    drawing?.abort();
    example = null;
    sketch.load(first);
    byId("rows").max = first.height - 1;
    byId("rows").value = sketch.rows;
    byId("colour-field").hidden = first.channels === 1;
    showRows();
    showModels(subject);
    showExamples(first, examples[subject] ?? []);
  }

  function showModels(subject) {
    const mine = models.flatMap((model, position) => (model.subject === subject ? [{ model, position }] : []));
    byId("models").replaceChildren(...mine.map(({ model, position }, number) => {
      const label = document.createElement("label");
      const box = document.createElement("input");
      Object.assign(box, { type: "checkbox", name: "model", value: String(position), checked: number < most });
      label.append(box, model.name);
      return label;
    }));
  }

  function showExamples(picture, found) {
    byId("examples-field").hidden = found.length === 0;
    const buttons = found.map((values, position) => {
      const button = document.createElement("button");
      const canvas = document.createElement("canvas");
      Object.assign(button, { type: "button", ariaLabel: `Test image ${position + 1}` });
      Object.assign(canvas, { width: picture.width, height: Math.ceil(picture.height / 2) });
      paint(canvas, { ...picture, height: canvas.height }, values.slice(0, picture.width * canvas.height * picture.channels));
      button.append(canvas);
      button.addEventListener("click", () => {
        example = position;
        sketch.take(values);
        mark();
      });
      return button;
    });
    byId("examples").replaceChildren(...buttons);
    mark();
  }

  function mark() {
    for (const [position, button] of [...byId("examples").children].entries()) {
      button.setAttribute("aria-pressed", String(position === example));
    }
  }

  function showRows() {
    byId("rows-value").textContent = `${sketch.rows} of ${sketch.picture.height}`;
  }

  function showTemperature() {
    byId("temperature-value").textContent = Number(byId("temperature").value).toFixed(2);
  }

  function say(text, { problem = false } = {}) {
    byId("status").textContent = text;
    byId("status").classList.toggle("problem", problem);
  }

  async function complete() {
    const chosen = [...byId("models").querySelectorAll("input:checked")].map((box) => Number(box.value));
    if (chosen.length === 0) return say("Choose a model first.", { problem: true });
    if (chosen.length > most) return say(`Choose at most ${most} models at a time.`, { problem: true });
    if (!byId("seed").checkValidity()) return say("The seed must be a whole number from 0 to 2147483647.", { problem: true });
    drawing?.abort();
    const mine = drawing = new AbortController();
    const given = sketch.given.slice();
    const cards = new Map(chosen.map((position) => [position, new Card(models[position].name, sketch.picture)]));
    const shown = [...cards.values()];
    if (example !== null) {
      shown.unshift(new Card("test image", sketch.picture));
      shown[0].still(examples[sketch.picture.subject][example]);
    }
    byId("cards").replaceChildren(...shown.map((card) => card.element));
    for (const card of cards.values()) card.begin(given);
    byId("stop").disabled = false;
    say("Drawing …");
    if (byId("cards").getBoundingClientRect().top > window.innerHeight - 120) byId("cards").scrollIntoView();
    try {
      const ask = {
        viewer,
        models: chosen,
        given: [...given],
        temperature: Number(byId("temperature").value),
        seed: Number(byId("seed").value),
      };
      const left = new Set(chosen);
      for await (const event of lines(ask, mine.signal)) {
        if (event.stopped) throw new Error(`Stopped: ${event.stopped}.`);
        cards.get(event.model).receive(event);
        if (event.done || event.error) left.delete(event.model);
      }
      if (left.size > 0) throw new Error("The connection was lost.");
      say("Done.");
    } catch (error) {
      const lost = error instanceof TypeError; // what fetch throws when there is no connection
      if (!mine.signal.aborted) say(lost ? "The server does not answer." : error.message, { problem: true });
      else if (drawing === mine) say("Stopped.");
    } finally {
      if (drawing === mine) {
        drawing = null;
        byId("stop").disabled = true;
      }
    }
    return undefined;
  }

  byId("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    complete();
  });
  byId("stop").addEventListener("click", () => drawing?.abort());
  byId("clear").addEventListener("click", () => sketch.clear());
  byId("rows").addEventListener("input", () => {
    sketch.setRows(Number(byId("rows").value));
    showRows();
  });
  byId("temperature").addEventListener("input", showTemperature);
  byId("new-seed").addEventListener("click", () => {
    byId("seed").value = crypto.getRandomValues(new Uint32Array(1))[0] % 100000;
  });
  for (const tool of document.querySelectorAll('[name="tool"]')) {
    tool.addEventListener("change", () => { sketch.erasing = tool.value === "eraser" && tool.checked; });
  }
  byId("colour").addEventListener("input", () => {
    sketch.colour = [1, 3, 5].map((at) => parseInt(byId("colour").value.slice(at, at + 2), 16));
  });
  showTemperature();
  chooseSubject();
}

// the server's answer, one JSON line at a time
async function* lines(ask, signal) {
  const response = await fetch("/draw", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(ask),
    signal,
  });
  if (!response.ok) {
    const text = await response.text();
    const isJson = response.headers.get("content-type") === "application/json";
    throw new Error(isJson ? JSON.parse(text).error : `The server refuses: ${text.trim()}`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}
