// Charts as SVG, drawn anew for every width, so that their words always have the same size.

const ROOM = { top: 14, right: 18, bottom: 40, left: 52 };
const LINE_HEIGHT = 300;
const DASHES = ["", "7 3", "2 3", "8 3 2 3"];
const HUES = 6;

/** Draws a chart into its figure whenever the figure has another width. */
function mountChart(figure, spec) {
  const holder = node("div", { class: "chart" });
  figure.prepend(holder);
  let drawn = 0;
  const draw = () => {
    const width = Math.floor(holder.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    holder.replaceChildren(spec.kind === "dots" ? dots(spec, width) : lines(spec, width));
  };
  new ResizeObserver(draw).observe(holder);
  draw();
}

function frameOf(spec, width, height) {
  return svg("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": spec.title,
  });
}

function hue(i) {
  return `hue-${i % HUES}`;
}

function dash(i) {
  return DASHES[Math.floor(i / HUES) % DASHES.length];
}

// ---- dots: for each setting its words, then its error and the paper's on one scale ----

const LETTER = 6.8; // the mean width of a letter of a name, in pixels
const NAME_LINE = 17;

/** Words in lines of no more letters than fit, each no shorter than its longest word. */
function wrappedWords(text, most) {
  const found = [""];
  for (const word of text.split(" ")) {
    const longer = found.at(-1) ? `${found.at(-1)} ${word}` : word;
    if (longer.length <= most || !found.at(-1)) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found;
}

/** The name of a line over its dots, its numbers behind it or, where there is no room, below. */
function nameOf(each, width, top) {
  const most = Math.floor(width / LETTER);
  const words = wrappedWords(each.name, most);
  const value = errorWords(each);
  const isBeside = words.at(-1).length + value.length + 3 <= most;
  const [first, ...more] = words.map((text, i) => (i ? { text, x: 0, dy: NAME_LINE } : { text }));
  const beside = isBeside ? { dx: 10 } : { x: 0, dy: NAME_LINE };
  const element = svg("text", { class: "name", x: 0, y: top, text: first.text });
  element.append(
    ...more.map((line) => svg("tspan", line)),
    svg("tspan", { class: "value", ...beside, text: value }),
  );
  return { element, bottom: top + NAME_LINE * (words.length - (isBeside ? 1 : 0)) };
}

function dots(spec, width) {
  let foot = 20;
  const names = spec.lines.map((each) => {
    const name = nameOf(each, width, foot);
    foot = name.bottom + 46;
    return name;
  });
  foot -= 14;
  const height = foot + ROOM.bottom - 6;
  const drawing = frameOf(spec, width, height);
  const ends = ({ mean, deviation }) => [mean - (deviation ?? 0), mean + (deviation ?? 0)];
  const all = spec.lines.flatMap((each) => [
    ...ends(each),
    ...(each.paper ? ends(each.paper) : []),
  ]);
  const x = scaleOf(all, false, 8, width - ROOM.right, Math.max(3, width / 120));
  for (const tick of x.ticks) {
    drawing.append(
      svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: 0, y2: foot }),
      svg("text", {
        class: "tick",
        x: x.at(tick),
        y: foot + 16,
        "text-anchor": "middle",
        text: round(tick),
      }),
    );
  }
  drawing.append(
    svg("text", {
      class: "axis",
      x: width / 2,
      y: height - 3,
      "text-anchor": "middle",
      text: spec.x,
    }),
  );
  spec.lines.forEach((each, i) => {
    drawing.append(names[i].element);
    const y = names[i].bottom + 13;
    if (each.paper) drawing.append(dot(x, y, each.paper, "paper"));
    drawing.append(dot(x, y, each, hue(each.hue)));
  });
  return drawing;
}

function errorWords({ mean, deviation, paper }) {
  const words = (value, spread) =>
    value.toFixed(2) + (spread === null ? "" : ` \u00b1 ${spread.toFixed(2)}`);
  return words(mean, deviation) + (paper ? `, paper ${words(paper.mean, paper.deviation)}` : "");
}

function dot(x, y, { mean, deviation }, kind) {
  const group = svg("g", { class: `dot ${kind}` });
  if (deviation !== null) {
    const [from, to] = [x.at(mean - deviation), x.at(mean + deviation)];
    group.append(svg("line", { class: "bar", x1: from, x2: to, y1: y, y2: y }));
  }
  const [at, r] = [x.at(mean), 5];
  const diamond = `M ${at} ${y - r} L ${at + r} ${y} L ${at} ${y + r} L ${at - r} ${y} Z`;
  group.append(
    kind === "paper" ? svg("path", { d: diamond }) : svg("circle", { cx: at, cy: y, r }),
  );
  return group;
}

// ---- lines: points over x, with spread where there is one, and a cross-hair that reads them ----

function lines(spec, width) {
  const height = LINE_HEIGHT;
  const drawing = frameOf(spec, width, height);
  const xs = spec.series.flatMap((each) => each.points.map((point) => point[0]));
  const ys = spec.series.flatMap((each) =>
    each.points.flatMap(([, y, d]) => [y - (d ?? 0), y + (d ?? 0)]),
  );
  const across = Math.max(3, width / 90);
  const x = scaleOf(xs, spec.logX, ROOM.left, width - ROOM.right, across, spec.wholeX);
  const y = scaleOf(ys, spec.logY, height - ROOM.bottom, ROOM.top, 6);
  axes(drawing, spec, x, y, width, height);
  const names = [...new Set(spec.series.map((each) => each.name))];
  for (const each of spec.series) drawing.append(line(each, names.indexOf(each.name), x, y));
  const box = node("div", { class: "chart-box" }, drawing);
  crosshair(box, drawing, spec, names, x, height);
  return names.length > 1 ? wrapped(box, key(names)) : box;
}

function wrapped(...parts) {
  const fragment = document.createDocumentFragment();
  fragment.append(...parts);
  return fragment;
}

function axes(drawing, spec, x, y, width, height) {
  for (const tick of y.ticks) {
    drawing.append(
      svg("line", {
        class: "grid",
        x1: ROOM.left,
        x2: width - ROOM.right,
        y1: y.at(tick),
        y2: y.at(tick),
      }),
      svg("text", {
        class: "tick",
        x: ROOM.left - 8,
        y: y.at(tick) + 4,
        "text-anchor": "end",
        text: round(tick),
      }),
    );
  }
  const foot = height - ROOM.bottom;
  for (const tick of x.ticks) {
    drawing.append(
      svg("text", {
        class: "tick",
        x: x.at(tick),
        y: foot + 18,
        "text-anchor": "middle",
        text: round(tick),
      }),
    );
  }
  const middle = (ROOM.top + foot) / 2;
  drawing.append(
    svg("text", {
      class: "axis",
      x: (ROOM.left + width) / 2,
      y: height - 4,
      "text-anchor": "middle",
      text: spec.x,
    }),
    svg("text", {
      class: "axis",
      x: 12,
      y: middle,
      "text-anchor": "middle",
      transform: `rotate(-90 12 ${middle})`,
      text: spec.y,
    }),
  );
}

function line(series, number, x, y) {
  const group = svg("g", { class: `line ${hue(number)}` });
  const at = series.points.map(([px, py]) => `${x.at(px).toFixed(1)} ${y.at(py).toFixed(1)}`);
  group.append(svg("path", { d: `M ${at.join(" L ")}`, "stroke-dasharray": dash(number) }));
  const few = series.points.length <= 12;
  for (const [px, py, deviation] of few ? series.points : series.points.slice(-1)) {
    if (deviation) {
      const [low, high] = [y.at(py - deviation), y.at(py + deviation)];
      group.append(svg("line", { class: "bar", x1: x.at(px), x2: x.at(px), y1: low, y2: high }));
    }
    group.append(svg("circle", { cx: x.at(px), cy: y.at(py), r: few ? 3.5 : 2 }));
  }
  return group;
}

function key(names) {
  const items = names.map((name, i) => {
    const sample = svg("svg", {
      width: 26,
      height: 10,
      "aria-hidden": "true",
      class: `line ${hue(i)}`,
    });
    sample.append(svg("path", { d: "M 1 5 L 25 5", "stroke-dasharray": dash(i) }));
    return node("li", {}, sample, node("span", { text: name }));
  });
  return node("ul", { class: "key" }, ...items);
}

/** Reads all lines at the x nearest to the mouse: their mean where a name has several. */
function crosshair(box, drawing, spec, names, x, height) {
  const rule = svg("line", {
    class: "rule",
    y1: ROOM.top,
    y2: height - ROOM.bottom,
    visibility: "hidden",
  });
  drawing.append(rule);
  const tip = node("div", { class: "tip", hidden: "" });
  box.append(tip);
  const stops = [...new Set(spec.series.flatMap((each) => each.points.map((point) => point[0])))];
  box.addEventListener("pointermove", (event) => {
    const left = event.clientX - box.getBoundingClientRect().left;
    const stop = stops.reduce((a, b) =>
      Math.abs(x.at(b) - left) < Math.abs(x.at(a) - left) ? b : a,
    );
    rule.setAttribute("x1", x.at(stop));
    rule.setAttribute("x2", x.at(stop));
    rule.setAttribute("visibility", "visible");
    const read = names.flatMap((name, i) => {
      const own = spec.series.filter((each) => each.name === name);
      const values = own.flatMap((each) =>
        each.points.filter(([px]) => px === stop).map(([, py]) => py),
      );
      if (!values.length) return [];
      const mean = values.reduce((a, b) => a + b) / values.length;
      return [node("li", { class: hue(i) }, node("b", { text: short(mean) }), ` ${name}`)];
    });
    tip.replaceChildren(node("p", { text: `${spec.x} ${round(stop)}` }), node("ul", {}, ...read));
    tip.hidden = false;
    const beside = left > box.clientWidth / 2 ? -tip.offsetWidth - 12 : 12;
    const room = box.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room, x.at(stop) + beside))}px`;
  });
  box.addEventListener("pointerleave", () => {
    rule.setAttribute("visibility", "hidden");
    tip.hidden = true;
  });
}
