// The view in which models translate a sentence side by side.

import { choices, chosen } from "./choices.js";
import { DraftCard } from "./draft.js";
import { Work } from "./stream.js";

const byId = (id) => document.getElementById(id);
const languageNames = new Intl.DisplayNames(["en"], { type: "language" });

export function setUpTranslation({ translators, sentences, most_models: most, most_refinements: mostRefinements }) {
  const work = new Work("/translate", { status: byId("translation-status"), stop: byId("stop-translation") });
  const hint = byId("translations").firstElementChild;
  const pairOf = ({ source, target }) => `${source}-${target}`;
  const pairs = new Map(translators.map((translator) => [pairOf(translator), translator]));
  byId("languages").replaceChildren(...[...pairs].map(([pair, { source, target }]) =>
    new Option(`${languageNames.of(source)} → ${languageNames.of(target)}`, pair)));
  byId("languages-field").hidden = pairs.size < 2;
  byId("languages").addEventListener("change", chooseLanguages);

  function chooseLanguages() {
    const pair = byId("languages").value;
    const { source, target } = pairs.get(pair);
    work.abort();
    byId("source-language").textContent = `Write a sentence in ${languageNames.of(source)}`;
    byId("target-language").textContent = `Translate it into ${languageNames.of(target)}`;
    byId("sentence").lang = source;
    const mine = translators.flatMap((model, position) => (pairOf(model) === pair ? [{ model, position }] : []));
    byId("translators").replaceChildren(...choices(mine, most));
    const refines = mine.some(({ model }) => model.refinements !== null);
    for (const id of ["refinements", "until-fixed"]) byId(id).closest(".field, .models").hidden = !refines;
    byId("refinements").max = mostRefinements;
    byId("refinements").value = Math.max(...mine.map(({ model }) => model.refinements ?? 0));
    showRefinements();
    showSentences(sentences[pair] ?? []);
  }

  function showSentences(found) {
    byId("sentences-field").hidden = found.length === 0;
    const options = found.map(({ source }) => new Option(source, source));
    byId("sentences").replaceChildren(new Option("choose one", ""), ...options);
  }

  function showRefinements() {
    byId("refinements-value").textContent = byId("refinements").value;
  }

  async function translate() {
    const asked = chosen(byId("translators"), most, work);
    if (asked.length === 0) return;
    const text = byId("sentence").value;
    const { target } = translators[asked[0]];
    const refinements = Number(byId("refinements").value);
    const untilFixed = byId("until-fixed").checked;
    const cards = new Map(asked.map((position) => [position, new DraftCard(translators[position], { untilFixed })]));
    const shown = [...cards.values()];
    const example = sentences[byId("languages").value]?.find(({ source }) => source === text.trim());
    if (example) {
      shown.unshift(new DraftCard({ name: "reference", note: "", target }, {}));
      shown[0].still(example.reference);
    }
    byId("translations").replaceChildren(...shown.map((card) => card.element));
    if (byId("translations").getBoundingClientRect().top > window.innerHeight - 120) byId("translations").scrollIntoView();
    const ask = { models: asked, text, refinements, until_fixed: untilFixed };
    await work.run(ask, { meanwhile: "Translating …", cards });
    if (!shown[0].element.isConnected) return; // a newer sentence has taken the place
    const made = [...cards.values()];
    if (made.every((card) => card.isEmpty)) byId("translations").replaceChildren(hint);
  }

  byId("translation-controls").addEventListener("submit", (event) => {
    event.preventDefault();
    translate();
  });
  byId("sentence").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    translate();
  });
  byId("sentence").addEventListener("input", () => { byId("sentences").value = ""; });
  byId("sentences").addEventListener("change", () => {
    if (byId("sentences").value) byId("sentence").value = byId("sentences").value;
  });
  byId("refinements").addEventListener("input", showRefinements);
  chooseLanguages();
}
