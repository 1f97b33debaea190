// One model's picture as it grows, and its numbers.

import { paint } from "./sketch.js";

const SECONDS_TO_WATCH = 1.5; // a whole picture takes at least so long to appear, however fast the model is
const DASH = "–";

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export class Card {
  constructor({ name, note }, picture) {
    const template = document.getElementById("card-template");
    this.element = template.content.firstElementChild.cloneNode(true);
    this.canvas = this.element.querySelector("canvas");
    this.progress = this.element.querySelector("progress");
    this.problem = this.element.querySelector(".problem");
    this.picture = picture;
    this.name = name;
    this.size = picture.width * picture.height * picture.channels;
    this.values = new Uint8Array(this.size);
    Object.assign(this.element.querySelector("h2"), { textContent: name, title: name });
    Object.assign(this.element.querySelector(".note"), { textContent: note, hidden: !note });
    this.whenShown = new Promise((resolve) => { this.finish = resolve; });
    this.progress.setAttribute("aria-label", `${name}: progress`);
    this.canvas.width = picture.width;
    this.canvas.height = picture.height;
  }

  // a picture with no model behind it: the test image itself
  still(values) {
    this.element.querySelector("dl").remove();
    this.progress.remove();
    this.values.set(values);
    this.element.classList.add("still");
    this.canvas.setAttribute("aria-label", this.name);
    paint(this.canvas, this.picture, this.values);
  }

  begin(given) {
    this.values.set(given);
    this.given = given.length;
    this.arrived = this.shown = given.length;
    this.done = false;
    this.render();
  }

  receive(event) {
    if (event.error) return this.fail(event.error);
    this.values.set(event.values, this.arrived);
    this.arrived += event.values.length;
    this.done = event.done;
    const { width, height, channels } = this.picture;
    const pixels = event.values_per_second === null ? null : event.values_per_second / channels;
    this.write("pixels", pixels, number.format);
    this.write("images", pixels && pixels / (width * height), number.format);
    this.write("state", event.state_bytes, memory);
    this.write("given", event.given_bits_per_dim, (bits) => bits.toFixed(3));
    this.write("drawn", event.drawn_bits_per_dim, (bits) => bits.toFixed(3));
    this.play();
    return undefined;
  }

  write(name, value, format) {
    this.element.querySelector(`[data-number="${name}"]`).textContent = value === null ? DASH : format(value);
  }

  fail(reason) {
    this.reason = reason;
    this.finish();
    this.problem.textContent = reason;
    this.problem.hidden = false;
    this.element.classList.add("failed");
  }

  // everything that arrived is shown, but no faster than one can watch
  play() {
    if (calm.matches) this.shown = this.arrived;
    if (this.frame !== undefined || this.shown === this.arrived) return this.render();
    let before = performance.now();
    const next = (now) => {
      const due = Math.max(1, Math.round((this.size * (now - before)) / 1000 / SECONDS_TO_WATCH));
      before = now;
      this.shown = Math.min(this.arrived, this.shown + due);
      this.render();
      this.frame = this.shown < this.arrived ? requestAnimationFrame(next) : undefined;
    };
    this.frame = requestAnimationFrame(next);
    return undefined;
  }

  render() {
    paint(this.canvas, this.picture, this.values.subarray(0, this.shown));
    const part = (this.shown - this.given) / (this.size - this.given);
    this.progress.value = part;
    const finished = this.done && this.shown === this.size;
    this.element.classList.toggle("finished", finished);
    if (finished) this.finish();
    this.canvas.setAttribute("aria-label", `${this.name}: ${finished ? "finished" : `${Math.floor(100 * part)} %`}`);
  }
}

export function memory(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  const power = bytes < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(bytes) / 3));
  return `${number.format(bytes / 1000 ** power)} ${units[power]}`;
}
