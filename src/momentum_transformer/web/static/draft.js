// One model's translation as it changes, and its numbers.

const SECONDS_A_STEP = 0.7; // to read it, however fast the model is
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export class DraftCard {
  constructor({ name, note, target, refinements }, { untilFixed = false }) {
    const template = document.getElementById("draft-template");
    this.element = template.content.firstElementChild.cloneNode(true);
    this.words = this.element.querySelector(".words");
    this.steps = this.element.querySelector(".steps");
    this.problem = this.element.querySelector(".problem");
    this.words.lang = this.steps.lang = target;
    this.isWordByWord = refinements === null;
    this.untilFixed = untilFixed;
    this.waiting = []; // events that were not shown yet
    this.isEmpty = true;
    this.whenShown = new Promise((resolve) => { this.resolve = resolve; });
    Object.assign(this.element.querySelector(".note"), { textContent: note, hidden: !note });
    Object.assign(this.element.querySelector("h2"), { textContent: name, title: name });
    this.element.querySelector('[data-number="changed"]').parentElement.hidden = this.isWordByWord;
  }

  // a translation with no model behind it: the reference
  still(text) {
    this.element.querySelector("dl").remove();
    this.words.textContent = text;
    this.element.classList.add("still");
  }

  receive(event) {
    if (event.error) return this.fail(event.error);
    this.isEmpty = false;
    this.waiting.push(event);
    if (calm.matches) while (this.waiting.length > 0) this.show(this.waiting.shift());
    else if (this.timer === undefined) this.play();
    return undefined;
  }

  fail(reason) {
    this.reason = reason;
    this.resolve();
    this.problem.textContent = reason;
    this.problem.hidden = false;
    this.element.classList.add("failed");
  }

  // everything that arrived is shown, but no faster than one can read
  play() {
    this.timer = undefined;
    const event = this.waiting.shift();
    if (event === undefined) return;
    this.show(event);
    if (event.done) return;
    this.timer = setTimeout(() => this.play(), 1000 * SECONDS_A_STEP);
  }

  show(event) {
    if (event.done) return this.finish();
    this.words.replaceChildren(...marked(event));
    if (!this.isWordByWord) this.addStep(event);
    this.last = event;
    this.write("tokens", event.tokens_per_second === null ? "–" : number.format(event.tokens_per_second));
    this.write("refinements", this.isWordByWord ? "none, word by word" : String(event.step));
    this.write("changed", event.step === 0 ? "–" : `${event.changed.length} of ${event.words.length}`);
    return undefined;
  }

  addStep(event) {
    if (event.is_same && this.last?.is_same) { // one line for all that change nothing
      const { step } = this.unchanged;
      this.unchanged.name.textContent = `${step}–${event.step}`;
      return;
    }
    const row = document.createElement("li");
    const name = document.createElement("span");
    const text = document.createElement("span");
    name.textContent = event.step === 0 ? "draft" : String(event.step);
    name.lang = "en";
    if (event.is_same) {
      Object.assign(text, { textContent: "unchanged", lang: "en" });
      this.unchanged = { step: event.step, name };
    } else text.append(...marked(event));
    row.append(name, text);
    this.steps.append(row);
  }

  finish() {
    this.resolve();
    this.element.classList.add("finished");
    if (this.untilFixed && this.last.is_same) this.write("refinements", `${this.last.step}, fixed point`);
  }

  write(name, text) {
    this.element.querySelector(`[data-number="${name}"]`).textContent = text;
  }
}

// the words with spaces between, changed ones marked
function marked({ words, changed }) {
  if (words.length === 0) return ["(no words)"];
  const isChanged = new Set(changed);
  return words.flatMap((word, place) => {
    const part = document.createElement(isChanged.has(place) ? "mark" : "span");
    part.textContent = word;
    return place === 0 ? [part] : [" ", part];
  });
}
