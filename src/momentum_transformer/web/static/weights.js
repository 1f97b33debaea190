// The weights of momentum attention by distance, beside the constant 1 of linear attention.

import { ceiling, element, shortly } from "./curves.js";

const RANGES = [10, 20, 50, 100, 500]; // of distances
const MARGIN = { left: 52, right: 16, top: 34, bottom: 52 };
const byId = (id) => document.getElementById(id);

// γ (1 + β + … + β^distance)
export function weight(beta, gamma, distance) {
  return beta === 0 ? gamma : (gamma * (1 - beta ** (distance + 1))) / (1 - beta);
}

export function setUpWeights({ models }) {
  let values = [Number(byId("beta").value), Number(byId("gamma").value)];
  const draw = () => show(...values);
  for (const [position, id] of ["beta", "gamma"].entries()) {
    byId(id).addEventListener("input", () => {
      values = values.with(position, Number(byId(id).value));
      draw();
    });
  }
  const take = (momentum) => {
    values = momentum;
    [byId("beta").value, byId("gamma").value] = momentum;
    draw();
  };
  const owners = new Map(); // β and γ → the models that have them
  for (const model of models) {
    const key = model.momentum?.join();
    if (key) owners.set(key, [...(owners.get(key) ?? []), model]);
  }
  const buttons = [...owners.values()].map((group) => {
    const [beta, gamma] = group[0].momentum;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: `β = ${beta}, γ = ${gamma}` });
    button.title = group.map(({ name }) => name).join(", ");
    button.addEventListener("click", () => take([beta, gamma]));
    return button;
  });
  if (buttons.length > 0) {
    byId("presets").replaceChildren("Of the loaded models: ", ...buttons);
    take(owners.values().next().value[0].momentum);
  }
  new ResizeObserver(draw).observe(byId("plot"));
}

function show(beta, gamma) {
  byId("beta-value").textContent = shortly(beta);
  byId("gamma-value").textContent = shortly(gamma);
  const limit = gamma / (1 - beta);
  byId("plot-summary").textContent =
    `Momentum weighs ${shortly(gamma)} at distance 0, ${shortly(weight(beta, gamma, 10))} at distance 10, and tends to ` +
    `γ / (1 − β) = ${shortly(limit)}. Linear attention weighs 1 everywhere.`;
  const { width, height } = byId("plot").getBoundingClientRect();
  if (width > 0) plot(beta, gamma, { width, height });
}

function plot(beta, gamma, { width, height }) {
  const limit = gamma / (1 - beta);
  const range = RANGES.find((last) => weight(beta, gamma, last) >= 0.985 * limit) ?? RANGES.at(-1);
  const weights = Array.from({ length: range + 1 }, (_, distance) => weight(beta, gamma, distance));
  const top = ceiling(1.08 * Math.max(1, limit));
  const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, height - MARGIN.bottom];
  const x = (distance) => left + ((right - left) * distance) / range;
  const y = (value) => bottom - ((bottom - MARGIN.top) * value) / top;
  const level = (name, value) => element("line", { class: name, x1: left, x2: right, y1: y(value), y2: y(value) });
  const text = (name, at, across, content) => element("text", { class: name, x: at, y: across }, content);
  const parts = [text("tick", 4, 16, "weight"), text("tick middle", (left + right) / 2, bottom + 44, "distance i − j")];
  for (let tick = 0; tick <= 5; tick++) {
    const value = (top * tick) / 5;
    parts.push(level("grid", value), text("tick end", left - 8, y(value) + 5, shortly(value)));
    parts.push(text("tick middle", x((range * tick) / 5), bottom + 22, (range * tick) / 5));
  }
  const points = weights.map((value, distance) => `${x(distance).toFixed(2)},${y(value).toFixed(2)}`).join(" ");
  parts.push(level("limit", limit), level("linear", 1), element("polyline", { class: "momentum", points }));
  // the names stand on the inner sides of the two lines where there is room, otherwise on the outer ones
  const above = limit >= 1 ? 1 : -1;
  const side = Math.abs(y(limit) - y(1)) > 60 ? above : -above;
  parts.push(text("name momentum-name end", right, y(limit) + (side > 0 ? 24 : -10), "momentum"));
  parts.push(text("name linear-name end", right, y(1) + (side > 0 ? -10 : 24), "linear: 1"));
  byId("plot").setAttribute("viewBox", `0 0 ${width} ${height}`);
  byId("plot").replaceChildren(...parts);
}
