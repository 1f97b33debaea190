// The view that shows how runs go: their losses so far and what they make, asked for again and again.

import { drawLosses } from "./curves.js";

const SECONDS_BETWEEN = 2;
const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function setUpTraining() {
  const cards = new Map(); // by the run's name and detail
  let tag = "";
  let waiting;

  async function look() {
    clearTimeout(waiting);
    if (byId("training").hidden || document.hidden) return;
    try {
      const response = await fetch("/training", { headers: tag ? { "if-none-match": tag } : {} });
      if (response.status === 200) {
        tag = response.headers.get("etag") ?? "";
        show(await response.json());
      } else if (response.status !== 304) throw new Error(`it answers ${response.status}`);
      say("");
    } catch (error) {
      say(error instanceof TypeError ? "The server does not answer." : `No news: ${error.message}.`);
    }
    waiting = setTimeout(look, 1000 * SECONDS_BETWEEN);
  }

  function say(text) {
    byId("training-status").textContent = text;
  }

  function show({ runs, more, folders }) {
    byId("no-runs").hidden = runs.length > 0;
    byId("more-runs").textContent = more > 0 ? `${more.toLocaleString("en")} more with older news are not shown.` : "";
    byId("watched").textContent = folders.join(", ");
    const left = new Set(cards.keys());
    const shown = runs.map((run) => {
      const key = `${run.name}\n${run.detail}`;
      left.delete(key);
      if (!cards.has(key)) cards.set(key, new RunCard());
      cards.get(key).show(run);
      return cards.get(key).element;
    });
    for (const key of left) cards.delete(key);
    const list = byId("runs");
    if (shown.some((element, at) => list.children[at] !== element) || list.children.length !== shown.length) {
      list.replaceChildren(...shown);
    }
  }

  new MutationObserver(look).observe(byId("training"), { attributes: true, attributeFilter: ["hidden"] });
  document.addEventListener("visibilitychange", look);
  look();
}

class RunCard {
  constructor() {
    this.element = byId("run-template").content.firstElementChild.cloneNode(true);
    this.find = (name) => this.element.querySelector(name);
  }

  show(run) {
    this.find("h2").textContent = run.name;
    this.find(".detail").textContent = run.detail;
    const of = run.steps === null ? "" : ` of ${run.steps.toLocaleString("en")}`;
    const speed = run.state === "under way" && run.tokens_per_second ? `, ${number.format(run.tokens_per_second)} tokens/s` : "";
    this.find(".state").textContent = `${run.state}: step ${run.step.toLocaleString("en")}${of}${speed}`;
    this.element.classList.toggle("underway", run.state === "under way");
    Object.assign(this.find("progress"), { value: run.step, max: Math.max(1, run.steps ?? run.step) });
    this.find("progress").setAttribute("aria-label", `${run.name}: progress`);
    this.find("progress").hidden = run.state === "finished";
    const curves = { train: run.train, validation: run.validation };
    const hasCurve = run.train.length + run.validation.length > 0;
    this.find(".losses").hidden = !hasCurve;
    this.find(".none").hidden = hasCurve;
    if (hasCurve) {
      drawLosses(this.find("svg"), curves, { steps: run.steps, readout: this.find(".readout") });
      const last = ([, loss]) => loss.toFixed(4);
      const words = Object.entries(curves).filter(([, points]) => points.length > 0).map(([name, points]) => `${name} ${last(points.at(-1))}`);
      this.find(".now").textContent = `${run.state === "under way" ? "loss now" : "last loss"}: ${words.join(", ")}`;
      this.find("svg").setAttribute("aria-label", `${run.name}: ${words.join(", ")} at step ${run.step}`);
    }
    this.showSamples(run);
  }

  showSamples({ samples, picture, name }) {
    const image = this.find("img");
    image.hidden = picture === null;
    if (picture !== null && image.getAttribute("src") !== picture) Object.assign(image, { src: picture, alt: `pictures drawn by ${name}` });
    this.find("details").hidden = samples.length === 0;
    const items = samples.map(({ step, text }) => {
      const item = document.createElement("li");
      const at = document.createElement("span");
      const body = document.createElement("pre");
      at.textContent = `step ${step.toLocaleString("en")}`;
      body.textContent = text;
      item.append(at, body);
      return item;
    });
    this.find(".samples").replaceChildren(...items);
  }
}
