// The view in which models complete a picture side by side.

import { Card } from "./card.js";
import { choices, chosen } from "./choices.js";
import { Sketch, paint } from "./sketch.js";
import { Work } from "./stream.js";

const byId = (id) => document.getElementById(id);

export function setUpPictures({ models, examples, most_models: most }) {
  let example = null; // the test image that the sketch shows, if any
  const work = new Work("/draw", { status: byId("status"), stop: byId("stop") });
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
  const count = (subject) => models.filter((model) => model.subject === subject).length;
  byId("subject").value = subjects.reduce((most, subject) => (count(subject) > count(most) ? subject : most));
  byId("subject").addEventListener("change", chooseSubject);

  function chooseSubject() {
    const subject = byId("subject").value;
    const first = models.find((model) => model.subject === subject);
    work.abort();
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
    byId("models").replaceChildren(...choices(mine, most));
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

  function complete() {
    const asked = chosen(byId("models"), most, work);
    if (asked.length === 0) return;
    if (!byId("seed").checkValidity()) {
      work.say("The seed must be a whole number from 0 to 2147483647.", { problem: true });
      return;
    }
    const given = example === null && sketch.isEmpty ? [] : sketch.given.slice();
    const cards = new Map(asked.map((position) => [position, new Card(models[position], sketch.picture)]));
    const shown = [...cards.values()];
    if (example !== null) {
      shown.unshift(new Card({ name: "test image", note: "" }, sketch.picture));
      shown[0].still(examples[sketch.picture.subject][example]);
    }
    byId("cards").replaceChildren(...shown.map((card) => card.element));
    for (const card of cards.values()) card.begin(given);
    if (byId("cards").getBoundingClientRect().top > window.innerHeight - 120) byId("cards").scrollIntoView();
    const ask = {
      models: asked,
      given: [...given],
      temperature: Number(byId("temperature").value),
      seed: Number(byId("seed").value),
    };
    work.run(ask, { meanwhile: "Drawing …", cards });
  }

  byId("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    complete();
  });
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
