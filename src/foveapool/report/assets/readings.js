// What an explorer draws and writes for the place it is at.

/** A place on the page for one component: its map and what is read from it. */
function makePanel(explorer, component) {
  const { height, width } = explorer.operator;
  const root = document.getElementById("component").content.firstElementChild.cloneNode(true);
  const size = node("small", { text: `over ${height} \u00d7 ${width}` });
  root.querySelector("h3").append(`Component ${component + 1} `, size);
  const pad = new Pad(
    root.querySelector("[data-pad]"),
    `Weights of component ${component + 1} over the input map. Arrow keys move the place that is read.`,
    {
      point: (row, column, byKey) => explorer.probe(row * width + column, byKey),
      leave: () => explorer.probe(null, false),
    },
    false,
  );
  pad.canvas.dataset.component = component;
  pad.grid(height, width);
  return { pad, root };
}

/** The weights of a component, over the example's map or image where one is laid beneath. */
function paintWeights(explorer, pad, component) {
  const { operator, state, limit } = explorer;
  const colors = ramp();
  const row = operator.row(component, state.place);
  const step = operator.step(component, state.place);
  const weights = pixels(operator.height, operator.width, (i) =>
    tint((row[i] * step) / limit, colors),
  );
  const beneath = picturesBeneath(explorer);
  if (state.probe !== null) {
    pad.at = [Math.floor(state.probe / operator.width), state.probe % operator.width];
  }
  pad.draw((context, width, height, density) => {
    context.fillStyle = css(colors.neutral);
    context.fillRect(0, 0, width, height);
    if (beneath && state.strength > 0) {
      context.globalAlpha = state.strength;
      context.drawImage(beneath, 0, 0, width, height);
      context.globalAlpha = 1;
    }
    context.drawImage(weights, 0, 0, width, height);
    if (state.marks) strokeNegative(context, operator, row, colors, density);
    pad.frame(context, operator.block(state.place), colors, 1.5 * density);
    if (state.probe !== null) {
      const [top, left] = pad.at;
      const cell = { top, left, bottom: top + 1, right: left + 1 };
      pad.frame(context, cell, colors, density, [2 * density, 2 * density]);
    }
  });
}

/** What lies beneath the colors, so that it is not read as weights. */
function beneathWords({ examples, state }) {
  if (!examples || state.beneath === "none") return "";
  if (state.beneath === "image") return "Beneath the colors: the image.";
  const channel = examples.channels[state.channel] + 1;
  return `In gray beneath the colors: the feature map of channel ${channel}.`;
}

function picturesBeneath({ examples, operator, state, map }) {
  if (!examples || state.beneath === "none") return null;
  if (state.beneath === "image") return examples.picture(state.image);
  const [low, high] = extent(map);
  const colors = ramp();
  return pixels(operator.height, operator.width, (i) =>
    shade((map[i] - low) / (high - low || 1), colors),
  );
}

/** A short line through every negative weight that can be seen: for prints without color. */
function strokeNegative(context, operator, row, colors, density) {
  const { width, height } = context.canvas;
  const [x, y] = [width / operator.width, height / operator.height];
  context.strokeStyle = colors.line;
  context.lineWidth = Math.max(1, 0.9 * density);
  context.beginPath();
  row.forEach((level, i) => {
    if (level > -LEVELS / 12) return;
    const middle = [((i % operator.width) + 0.5) * x, (Math.floor(i / operator.width) + 0.5) * y];
    context.moveTo(middle[0] - 0.25 * x, middle[1]);
    context.lineTo(middle[0] + 0.25 * x, middle[1]);
  });
  context.stroke();
}

/** The numbers behind the output map's brightness, one a place. */
function quantities({ operator, state, map, level }) {
  const [kind, number] = state.quantity.split(" ");
  const component = Number(number);
  const places = Array.from({ length: operator.outputs }, (_, place) => place);
  if (kind === "pooled") return places.map((m) => operator.pooled(map, level, component, m));
  const first = component * operator.outputs;
  if (kind === "gain")
    return places.map((m) => operator.separability[first + m] / operator.average[m]);
  return places.map((m) => operator[kind][first + m]);
}

function paintOutput(explorer) {
  const { operator, state, output } = explorer;
  const values = quantities(explorer);
  const colors = ramp();
  const [low, high] = extent(values);
  const [top, left] = output.at;
  // Discs, so that no one takes these values for weights, which are squares.
  output.draw((context, width, height, density) => {
    const [x, y] = [width / operator.outWidth, height / operator.outHeight];
    values.forEach((value, i) => {
      if (!Number.isFinite(value)) return;
      const middle = [(i % operator.outWidth) + 0.5, Math.floor(i / operator.outWidth) + 0.5];
      context.fillStyle = css(shade((value - low) / (high - low || 1), colors).slice(0, 3));
      context.beginPath();
      context.arc(middle[0] * x, middle[1] * y, 0.44 * Math.min(x, y), 0, 2 * Math.PI);
      context.fill();
    });
    const cell = { top, left, bottom: top + 1, right: left + 1 };
    output.frame(context, cell, { line: "#ffc933", halo: "#1d1d1b" }, 2 * density);
  });
  paintBar(explorer.part("part", "shades"), (share) => shade(share, colors));
  explorer.say("least", short(low));
  explorer.say("here", `here ${short(values[state.place])}`);
  explorer.say("most", short(high));
}

/** The colors from -limit to limit, each as it is drawn over nothing. */
function paintLegend(explorer) {
  const colors = ramp();
  paintBar(explorer.part("part", "legend"), (share) => tint(2 * share - 1, colors));
  const digits = digitsOf(explorer.limit / LEVELS);
  explorer.say("low", signed(-explorer.limit, digits));
  explorer.say("high", signed(explorer.limit, digits));
}

function paintBar(canvas, color) {
  const steps = 2 * LEVELS + 1;
  canvas.width = steps;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  context.fillStyle = css(ramp().neutral);
  context.fillRect(0, 0, steps, 1);
  context.drawImage(
    pixels(1, steps, (i) => color(i / (steps - 1))),
    0,
    0,
  );
}

/** The strongest weight of a place, the sum of all, and what is pooled from the example. */
function facts(explorer, component) {
  const { operator, state, map, level } = explorer;
  const row = operator.row(component, state.place);
  const step = operator.step(component, state.place);
  let strongest = 0;
  let sum = 0;
  row.forEach((each, i) => {
    sum += each;
    if (Math.abs(each) > Math.abs(row[strongest])) strongest = i;
  });
  const at = component * operator.outputs + state.place;
  return {
    digits: digitsOf(step),
    strongest: row[strongest] * step,
    where: placeWords(Math.floor(strongest / operator.width), strongest % operator.width),
    sum: sum * step,
    pooled: map ? operator.pooled(map, level, component, state.place) : null,
    average: map ? averageOf(map, operator, state.place) : null,
    separability: operator.separability[at],
    gain: operator.separability[at] / operator.average[state.place],
    radius: operator.radius[at],
    gap: operator.gaps[at],
  };
}

function averageOf(map, operator, place) {
  const { top, bottom, left, right } = operator.block(place);
  let sum = 0;
  for (let y = top; y < bottom; y++) {
    for (let x = left; x < right; x++) sum += map[y * operator.width + x];
  }
  return sum / ((bottom - top) * (right - left));
}

function showReadings(explorer, root, component) {
  const { state, operator, map } = explorer;
  const told = facts(explorer, component);
  const lines = [
    ["strongest weight", signed(told.strongest, told.digits), `at ${told.where}`],
    ["sum of weights", signed(told.sum, Math.max(1, told.digits - 1)), ""],
    ["separability", short(told.separability), `${short(told.gain)} \u00d7 average pooling here`],
    ["radius", `${short(told.radius)} px`, `gap to the next ${short(told.gap)}`],
  ];
  if (map)
    lines.unshift(["pooled value", short(told.pooled), `average pooling ${short(told.average)}`]);
  root
    .querySelector("[data-value=readings]")
    .replaceChildren(
      ...lines.map(([name, value, more]) =>
        node(
          "div",
          {},
          node("dt", { text: name }),
          node(
            "dd",
            {},
            node("b", { text: value }),
            ...(more ? [node("span", { text: more })] : []),
          ),
        ),
      ),
    );
  const probe = root.querySelector("[data-value=probe]");
  if (state.probe === null) {
    probe.textContent = "Point at the map to read a weight.";
    return;
  }
  probe.textContent = probeWords(explorer, component, operator.width);
}

function probeWords({ operator, state, map }, component, width) {
  const where = placeWords(Math.floor(state.probe / width), state.probe % width);
  const step = operator.step(component, state.place);
  const weight = operator.weight(component, state.place, state.probe);
  const times = map
    ? ` \u00d7 ${short(map[state.probe])} = ${short(weight * map[state.probe])}`
    : "";
  return `${where}: ${signed(weight, digitsOf(step))}${times}`;
}

/** Everything at this place in sentences, for those who listen. */
function readingWords(explorer) {
  const { operator, state, panels } = explorer;
  const row = Math.floor(state.place / operator.outWidth);
  const said = [
    `${placeWords(row, state.place % operator.outWidth)}, alpha ${round(operator.alpha)}.`,
  ];
  panels.forEach((_, component) => {
    const told = facts(explorer, component);
    const words = [
      `Component ${component + 1}: strongest weight ${signed(told.strongest, told.digits)} at ${told.where}`,
    ];
    if (told.pooled !== null) words.push(`pooled value ${short(told.pooled)}`);
    if (state.probe !== null)
      words.push(`read at ${probeWords(explorer, component, operator.width)}`);
    said.push(`${words.join(", ")}.`);
  });
  return said.join(" ");
}
