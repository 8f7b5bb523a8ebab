// Elements of the page, made from text that never becomes markup.

/** An element with attributes and children; `text` is text, never markup. */
function node(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

/** The same for drawings. */
function svg(tag, attributes = {}, ...children) {
  const { text, ...rest } = attributes;
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(rest)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => node("option", { value, text })));
  if (chosen !== undefined) select.value = chosen;
}
