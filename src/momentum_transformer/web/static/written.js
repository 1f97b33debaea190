// One model's text as it grows, and its numbers.

import { memory } from "./card.js";
import { spark } from "./curves.js";

const SECONDS_TO_WATCH = 1.5; // a whole text takes at least so long to appear, however fast the model is
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export class WrittenCard {
  constructor({ name, note }, { prompt, tokens }) {
    const template = document.getElementById("written-template");
    this.element = template.content.firstElementChild.cloneNode(true);
    this.text = this.element.querySelector(".written");
    this.problem = this.element.querySelector(".problem");
    this.spark = this.element.querySelector(".spark");
    this.tokens = tokens;
    this.arrived = ""; // all of it
    this.shown = 0; // characters of it on the page
    this.states = []; // bytes after each token
    this.whenShown = new Promise((resolve) => { this.finish = resolve; });
    Object.assign(this.element.querySelector("h2"), { textContent: name, title: name });
    Object.assign(this.element.querySelector(".note"), { textContent: note, hidden: !note });
    const given = document.createElement("b");
    given.textContent = prompt;
    this.added = document.createTextNode("");
    this.text.append(given, this.added);
  }

  receive(event) {
    if (event.error) return this.fail(event.error);
    this.arrived += event.text;
    this.done = event.done;
    this.states.push(...event.states);
    this.write("tokens", event.tokens_per_second === null ? "–" : number.format(event.tokens_per_second));
    this.write("written", `${event.tokens} of ${this.tokens}`);
    if (this.states.length > 0) this.write("state", memory(this.states.at(-1)));
    this.play();
    return undefined;
  }

  write(name, text) {
    this.element.querySelector(`[data-number="${name}"]`).textContent = text;
  }

  fail(reason) {
    this.reason = reason;
    this.problem.textContent = reason;
    this.problem.hidden = false;
    this.element.classList.add("failed");
    this.finish();
  }

  // all cards have one scale, so that a growing state can be told from a flat one
  drawState(most) {
    const points = this.states.map((bytes, token) => [token + 1, bytes]);
    if (points.length > 0) spark(this.spark, [[0, this.states[0]], ...points], { mostX: this.tokens, mostY: most });
  }

  // everything that arrived is shown, but no faster than one can watch
  play() {
    if (calm.matches) this.shown = this.arrived.length;
    if (this.frame !== undefined || this.shown === this.arrived.length) return this.render();
    let before = performance.now();
    const next = (now) => {
      const due = Math.max(1, Math.round((this.tokens * (now - before)) / 1000 / SECONDS_TO_WATCH));
      before = now;
      this.shown = Math.min(this.arrived.length, this.shown + due);
      this.render();
      this.frame = this.shown < this.arrived.length ? requestAnimationFrame(next) : undefined;
    };
    this.frame = requestAnimationFrame(next);
    return undefined;
  }

  render() {
    const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 24;
    this.added.data = this.arrived.slice(0, this.shown);
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
    if (!this.done || this.shown < this.arrived.length) return;
    this.element.classList.add("finished");
    this.finish();
  }
}
