// Lines of numbers as small pictures.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

export function shortly(value) {
  return Number(value.toPrecision(4)).toString();
}

// the next of 1, 2, 2.5, 5, 10 … so that an axis has round numbers
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10].find((step) => step * power >= value);
}

// a line without axes from the left edge; [x, y] each, both from 0 to their most
export function spark(svg, points, { mostX, mostY }) {
  const { width, height } = svg.viewBox.baseVal;
  const at = ([x, y]) => `${((width * x) / mostX).toFixed(1)},${(height - 2 - ((height - 4) * y) / mostY).toFixed(1)}`;
  svg.replaceChildren(element("polyline", { class: "spark-line", points: points.map(at).join(" ") }));
}

const MARGIN = { left: 44, right: 10, top: 12, bottom: 26 };

// losses against steps: {name: [[step, loss], …]}; the readout names the nearest points under the pointer
export function drawLosses(svg, curves, { steps, readout }) {
  const { width, height } = svg.viewBox.baseVal;
  const all = Object.values(curves).flat();
  const losses = all.map(([, loss]) => loss);
  const [low, high] = [Math.min(...losses), Math.max(...losses)];
  // where losses fall far, steps of the same ratio are of the same height
  const [scale, unscale] = low > 0 && high > 3 * low ? [Math.log, Math.exp] : [Number, Number];
  const [floor, ceil] = [scale(low), scale(high)];
  const room = (ceil - floor || Math.abs(ceil) || 1) * 0.05;
  const last = Math.max(1, steps ?? 0, ...all.map(([step]) => step));
  const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
  const ticks = [0, 1, 2, 3].map((tick) => unscale(floor + ((ceil - floor) * tick) / 3));
  const digits = [3, 4].find((n) => new Set(ticks.map((loss) => loss.toPrecision(n))).size === ticks.length) ?? 5;
  const labels = ticks.map((loss) => loss.toPrecision(digits));
  const left = Math.max(MARGIN.left, 10 + 7 * Math.max(...labels.map((label) => label.length)));
  const x = (step) => left + ((right - left) * step) / last;
  const y = (loss) => bottom - ((bottom - MARGIN.top) * (scale(loss) - floor + room)) / (ceil - floor + 2 * room);
  const parts = [];
  for (const [i, loss] of ticks.entries()) {
    parts.push(element("line", { class: "grid", x1: left, x2: right, y1: y(loss), y2: y(loss) }));
    parts.push(element("text", { class: "tick end", x: left - 6, y: y(loss) + 4 }, labels[i]));
  }
  parts.push(element("text", { class: "tick", x: left, y: height - 6 }, "0"));
  parts.push(element("text", { class: "tick end", x: right, y: height - 6 }, `step ${last.toLocaleString("en")}`));
  for (const [name, points] of Object.entries(curves)) {
    const at = points.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
    parts.push(element("polyline", { class: `curve ${name}-curve`, points: at }));
    if (points.length === 1) parts.push(element("circle", { class: `dot ${name}-dot`, cx: x(points[0][0]), cy: y(points[0][1]), r: 3 }));
  }
  const cursor = element("line", { class: "cursor", x1: 0, x2: 0, y1: MARGIN.top, y2: bottom, visibility: "hidden" });
  svg.replaceChildren(...parts, cursor);
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const step = (((event.clientX - box.left) / box.width) * width - left) / (right - left) * last;
    const near = Object.entries(curves).filter(([, points]) => points.length > 0).map(([name, points]) =>
      [name, points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best))]);
    readout.textContent = near.map(([name, [at, loss]]) => `${name} ${loss.toFixed(4)} at ${at.toLocaleString("en")}`).join(" · ");
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, x(near[0][1][0]));
    cursor.setAttribute("visibility", "visible");
  };
  svg.onpointerleave = () => {
    readout.textContent = "";
    cursor.setAttribute("visibility", "hidden");
  };
}
