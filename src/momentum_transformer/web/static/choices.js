// Which models are asked.

// a box for each model that may be chosen; the first ones are
export function choices(models, most) {
  return models.map(({ model, position }, number) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, { type: "checkbox", name: "model", value: String(position), checked: number < most });
    const note = document.createElement("small");
    note.textContent = model.note;
    label.append(box, model.name, ...(model.note ? [note] : []));
    return label;
  });
}

// the chosen models, or none and a word about it
export function chosen(container, most, work) {
  const found = [...container.querySelectorAll("input:checked")].map((box) => Number(box.value));
  if (found.length === 0) work.say("Choose a model first.", { problem: true });
  else if (found.length > most) work.say(`Choose at most ${most} models at a time.`, { problem: true });
  else return found;
  return [];
}
