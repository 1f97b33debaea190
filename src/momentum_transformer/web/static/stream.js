// Asking the server for what models make, and hearing of it line by line.

// of this page: the server makes one thing at a time for each
const viewer = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Work {
  constructor(path, { status, stop }) {
    this.path = path;
    this.status = status;
    this.stop = stop;
    this.current = null; // aborts what is being made
    stop.addEventListener("click", () => this.abort());
  }

  abort() {
    this.current?.abort();
  }

  say(text, { problem = false } = {}) {
    this.status.textContent = text;
    this.status.classList.toggle("problem", problem);
  }

  // whether all models came to their end; what kept them from it is said.
  // `cards` show what the models make; "Done" is said when the last of them has shown it all
  async run(ask, { meanwhile, cards, received = () => {} }) {
    this.abort();
    const mine = this.current = new AbortController();
    this.stop.disabled = false;
    this.say(meanwhile);
    try {
      const left = new Set(ask.models);
      for await (const event of lines(this.path, { viewer, ...ask }, mine.signal)) {
        if (event.stopped) throw new Error(`Stopped: ${event.stopped}.`);
        if (event.waiting) {
          this.say(`In the queue: ${event.waiting === 1 ? "one viewer is" : `${event.waiting} viewers are`} before you.`);
          continue;
        }
        if (this.status.textContent !== meanwhile) this.say(meanwhile);
        cards.get(event.model).receive(event);
        received();
        if (event.done) left.delete(event.model);
      }
      if (left.size > 0) throw new Error("The connection was lost.");
      const made = [...cards.values()];
      await Promise.race([Promise.all(made.map((card) => card.whenShown)), aborted(mine.signal)]);
      const reasons = new Set(made.map((card) => card.reason));
      if (!reasons.has(undefined)) throw new Error(reasons.size === 1 ? made[0].reason : "No model could do it.");
      this.say("Done.");
      return true;
    } catch (error) {
      const lost = error instanceof TypeError; // what fetch throws when there is no connection
      if (!mine.signal.aborted) this.say(lost ? "The server does not answer." : error.message, { problem: true });
      else if (this.current === mine) this.say("Stopped.");
      return false;
    } finally {
      if (this.current === mine) {
        this.current = null;
        this.stop.disabled = true;
      }
    }
  }
}

function aborted(signal) {
  return new Promise((_, reject) => {
    const stop = () => reject(new DOMException("stopped", "AbortError"));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
  });
}

// the server's answer, one JSON line at a time
async function* lines(path, ask, signal) {
  const response = await fetch(path, {
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
