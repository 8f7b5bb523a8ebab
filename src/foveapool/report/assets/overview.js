// The operator at a glance: the weights at evenly spaced output places, a block a component.

const ALONG = 3;

/** Places of an axis, evenly spaced, the outermost ones half a step from the edge. */
function spread(size) {
  const count = Math.min(size, ALONG);
  return Array.from({ length: count }, (_, i) => Math.floor(((i + 0.5) * size) / count));
}

/** A block of buttons for each component; choosing one goes to its place. */
function overview(operator, choose) {
  const rows = spread(operator.outHeight);
  const columns = spread(operator.outWidth);
  return Array.from({ length: operator.components }, (_, component) => {
    const nine = node("div", { class: "nine" });
    nine.style.gridTemplateColumns = `repeat(${columns.length}, 1fr)`;
    for (const row of rows) {
      for (const column of columns) {
        const place = row * operator.outWidth + column;
        const label = `Component ${component + 1} at ${placeWords(row, column)}: go there`;
        const button = node(
          "button",
          { type: "button", "aria-label": label },
          panel(operator, component, place),
        );
        button.addEventListener("click", () => choose(place));
        nine.append(button);
      }
    }
    return node("div", {}, node("p", { text: `component ${component + 1}` }), nine);
  });
}

/** The weights of one place, and a dot in the middle of the block it stands for. */
function panel(operator, component, place) {
  const colors = ramp();
  const row = operator.row(component, place);
  const step = operator.step(component, place);
  const weights = pixels(operator.height, operator.width, (i) =>
    tint((row[i] * step) / operator.limit, colors),
  );
  const zoom = Math.max(1, Math.ceil(160 / operator.width));
  const canvas = document.createElement("canvas");
  canvas.width = zoom * operator.width;
  canvas.height = zoom * operator.height;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.fillStyle = css(colors.neutral);
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(weights, 0, 0, canvas.width, canvas.height);
  const { top, bottom, left, right } = operator.block(place);
  context.fillStyle = colors.line;
  context.beginPath();
  context.arc((zoom * (left + right)) / 2, (zoom * (top + bottom)) / 2, 4, 0, 2 * Math.PI);
  context.fill();
  return canvas;
}
