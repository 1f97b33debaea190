// The picture a viewer begins: painted by pointer or keyboard, or taken from a test image.

export class Sketch {
  constructor(root, { position, onChange }) {
    this.canvas = root.querySelector("canvas");
    this.rest = root.querySelector(".sketch-rest");
    this.cursor = root.querySelector(".sketch-cursor");
    this.position = position;
    this.onChange = onChange;
    this.erasing = false;
    this.colour = [255, 255, 255];
    this.listen();
  }

  load(picture) {
    this.picture = picture;
    this.values = new Uint8Array(picture.width * picture.height * picture.channels);
    this.canvas.width = picture.width;
    this.canvas.height = picture.height;
    this.at = { x: Math.floor(picture.width / 2), y: 0 };
    this.setRows(Math.floor(picture.height / 2));
  }

  setRows(rows) {
    this.rows = rows;
    this.at.y = Math.min(this.at.y, Math.max(0, rows - 1));
    this.rest.style.top = `${(100 * rows) / this.picture.height}%`;
    this.rest.classList.toggle("narrow", rows > 0.85 * this.picture.height);
    this.placeCursor();
    this.show();
  }

  get given() {
    return this.values.subarray(0, this.rows * this.picture.width * this.picture.channels);
  }

  get isEmpty() {
    return this.given.every((value) => value === 0);
  }

  take(values) {
    this.values.set(values);
    this.show();
  }

  clear() {
    this.values.fill(0);
    this.changed();
  }

  changed() {
    this.show();
    this.onChange();
  }

  show() {
    paint(this.canvas, this.picture, this.given);
  }

  listen() {
    let last = null;
    const where = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return {
        x: ((event.clientX - box.left) / box.width) * this.picture.width,
        y: ((event.clientY - box.top) / box.height) * this.picture.height,
      };
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      last = where(event);
      this.stroke(last, last);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (last === null) return;
      const parts = event.getCoalescedEvents?.() ?? [];
      for (const part of parts.length > 0 ? parts : [event]) {
        const next = where(part);
        this.stroke(last, next);
        last = next;
      }
    });
    const lift = () => { last = null; };
    this.canvas.addEventListener("pointerup", lift);
    this.canvas.addEventListener("pointercancel", lift);
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => { this.cursor.hidden = !this.canvas.matches(":focus-visible"); });
    this.canvas.addEventListener("blur", () => { this.cursor.hidden = true; });
  }

  onKey(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      this.at.x = Math.min(this.picture.width - 1, Math.max(0, this.at.x + dx));
      this.at.y = Math.min(Math.max(0, this.rows - 1), Math.max(0, this.at.y + dy));
    } else if (event.key === " ") {
      this.setPixel(this.at, this.erasing ? 0 : 1);
      this.changed();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.setPixel(this.at, 0);
      this.changed();
    } else {
      return;
    }
    event.preventDefault();
    this.cursor.hidden = false;
    this.placeCursor();
    const painted = this.read(this.at).some((value) => value > 0);
    this.position.textContent = `row ${this.at.y + 1}, column ${this.at.x + 1}, ${painted ? "painted" : "empty"}`;
  }

  placeCursor() {
    const { width, height } = this.picture;
    Object.assign(this.cursor.style, {
      left: `${(100 * this.at.x) / width}%`,
      top: `${(100 * this.at.y) / height}%`,
      width: `${100 / width}%`,
      height: `${100 / height}%`,
    });
  }

  read({ x, y }) {
    const { width, channels } = this.picture;
    return this.values.subarray((y * width + x) * channels, (y * width + x + 1) * channels);
  }

  // coverage 1 is full paint, 0 is none; a soft edge never darkens what is painted already
  setPixel(pixel, coverage, { soft = false } = {}) {
    if (pixel.y >= this.rows) return;
    const target = this.read(pixel);
    const paintOf = (channel) => (target.length === 1 ? 255 : this.colour[channel]);
    for (let channel = 0; channel < target.length; channel++) {
      const full = coverage * paintOf(channel);
      if (!soft) target[channel] = full;
      else if (this.erasing) target[channel] = Math.min(target[channel], Math.round(255 * (1 - coverage)));
      else if (target.length === 1) target[channel] = Math.max(target[channel], Math.round(full));
      else target[channel] = Math.round(full + (1 - coverage) * target[channel]);
    }
  }

  // a line of the thickness of handwriting, covering each pixel by its distance from it
  stroke(from, to) {
    const { width, height } = this.picture;
    const radius = Math.max(0.55, width / 26);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = dx * dx + dy * dy;
    for (let y = 0; y < Math.min(height, this.rows); y++) {
      for (let x = 0; x < width; x++) {
        const [px, py] = [x + 0.5 - from.x, y + 0.5 - from.y];
        const along = length === 0 ? 0 : Math.min(1, Math.max(0, (px * dx + py * dy) / length));
        const distance = Math.hypot(px - along * dx, py - along * dy);
        const coverage = Math.min(1, radius + 0.5 - distance);
        if (coverage > 0) this.setPixel({ x, y }, coverage, { soft: true });
      }
    }
    this.changed();
  }
}

// the first values of a picture on a canvas of its size; what is missing stays transparent
export function paint(canvas, { width, height, channels }, values) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = Math.ceil(values.length / channels);
  for (let pixel = 0; pixel < pixels; pixel++) {
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * pixel + channel] = values[pixel * channels + (channels === 1 ? 0 : channel)] ?? 0;
    }
    image.data[4 * pixel + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
