// Browsers start no worker for a page that comes from a folder. There, the worker of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, srcdoc: "<!doctype html>" });
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.answer(data);
        const script = Object.assign(inside.document.createElement("script"), { src: url });
        script.addEventListener("load", () => {
          this.inside = inside;
          for (const data of this.waiting.splice(0)) this.postMessage(data);
        });
        inside.document.body.append(script);
      });
      document.body.append(frame);
    }

    // messages are copies, and come later: what sends one does not run into its answer
    answer(data) {
      const event = new MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => this.onmessage?.(event));
    }

    postMessage(data) {
      const event = new MessageEvent("message", { data: structuredClone(data) });
      if (this.inside) setTimeout(() => this.inside.dispatchEvent(event));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
