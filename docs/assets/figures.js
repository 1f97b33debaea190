// A button and a slider for each figure that moves. Without this script the figures play by themselves.
for (const figure of document.querySelectorAll("figure.moving")) {
  const svg = figure.querySelector("svg");
  const frames = [...svg.querySelectorAll(".frame")];
  const button = Object.assign(document.createElement("button"), { type: "button" });
  const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: frames.length - 1 });
  slider.setAttribute("aria-label", `Step of the figure: ${svg.querySelector("title").textContent}`);
  let timer = null;

  const show = (step) => {
    slider.value = step;
    frames.forEach((frame, number) => frame.classList.toggle("shown", number === step));
  };
  const play = (on) => {
    clearInterval(timer);
    timer = on ? setInterval(() => show((Number(slider.value) + 1) % frames.length), 1000 * svg.dataset.seconds) : null;
    button.textContent = on ? "Pause" : "Play";
  };
  button.addEventListener("click", () => play(timer === null));
  slider.addEventListener("input", () => {
    play(false);
    show(Number(slider.value));
  });

  const controls = document.createElement("div");
  controls.className = "controls";
  controls.append(button, slider);
  svg.after(controls);
  svg.classList.add("stepped");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  show(still ? frames.length - 1 : 0);
  play(!still);
}
