// Explorer: one moves over the output map and sees, for each component, that place's weights over
// the input map, with an example's feature map beneath and what is pooled from it.

const PAUSE = 350; // ms without a move before a moving mouse is read out

class Explorer {
  /** families: packed operators and examples; peers: those that move along; changed(): tell it. */
  constructor(families, peers, name, changed) {
    this.families = families;
    this.peers = peers;
    this.name = name;
    this.changed = changed;
    this.root = document.getElementById("explorer").content.firstElementChild.cloneNode(true);
    this.state = {
      family: 0,
      alpha: middleOf(families[0].operators),
      place: 0,
      image: 0,
      channel: 0,
      beneath: "none",
      strength: 0.6,
      scale: "operator",
      marks: false,
      quantity: "",
      probe: null,
      held: false,
    };
    this.output = new Pad(
      this.part("pad", "output"),
      "Output map. Arrow keys move the place, Enter holds it against the mouse.",
      {
        point: (row, column, byKey) => this.point(row, column, byKey),
        press: (...at) => this.press(...at),
      },
      true,
    );
    this.panels = [];
    this.fillFamilies();
    this.listen();
  }

  part(kind, name) {
    return this.root.querySelector(`[data-${kind}="${name}"]`);
  }

  say(name, text) {
    this.part("value", name).textContent = text;
  }

  get family() {
    return this.families[this.state.family];
  }

  // ---- what is chosen ----

  fillFamilies() {
    const names = this.families.map((each) => each.label);
    fillSelect(
      this.part("control", "family"),
      names.map((label, i) => [i, label]),
    );
    this.part("part", "families").hidden = names.length < 2;
    // One radio group an explorer: the names only have to differ.
    for (const radio of this.root.querySelectorAll("input[type=radio]")) {
      radio.name = `${radio.dataset.control}-${this.name}`;
    }
  }

  listen() {
    const { state } = this;
    const on = (name, change) => {
      for (const control of this.root.querySelectorAll(`[data-control="${name}"]`)) {
        control.addEventListener("input", () => {
          change(control);
          this.show().then(() => this.readOut(false));
        });
      }
    };
    on("family", (control) => {
      state.family = Number(control.value);
      state.alpha = this.nearestAlpha();
    });
    on("alpha", (control) => (state.alpha = Number(control.value)));
    on("quantity", (control) => (state.quantity = control.value));
    on("scale", (control) => (state.scale = control.value));
    on("beneath", (control) => (state.beneath = control.value));
    on("channel", (control) => (state.channel = Number(control.value)));
    on("strength", (control) => (state.strength = control.value / 100));
    on("marks", (control) => (state.marks = control.checked));
  }

  /** The stop whose alpha is nearest to the one asked for, or to the one seen before. */
  nearestAlpha(asked = this.operator?.alpha ?? 1) {
    const power = (alpha) => Math.log(Math.max(alpha, 1e-9)); // alpha may be 0
    const seen = power(asked);
    const distances = this.family.operators.map((each) => Math.abs(power(each.alpha) - seen));
    return distances.indexOf(Math.min(...distances));
  }

  // ---- loading: an operator is unpacked when it is first seen ----

  async show() {
    const asked = (this.asked = Symbol("asked"));
    const { family } = this;
    family.unpacked ??= [];
    family.unpacked[this.state.alpha] ??= Operator.of(family.operators[this.state.alpha]);
    family.shown ??= family.examples ? Examples.of(family.examples) : null;
    const [operator, examples] = await Promise.all([
      family.unpacked[this.state.alpha],
      family.shown,
    ]);
    if (asked !== this.asked) return; // something else was chosen in the meantime
    const isNew = this.shownFamily !== family;
    const before = this.operator;
    Object.assign(this, { operator, examples, shownFamily: family });
    if (isNew) this.begin(before);
    this.refresh();
  }

  /** Fits the explorer to a family: sizes, components, examples. */
  begin(before) {
    const { operator, examples, state } = this;
    const count = this.family.operators.length;
    this.part("part", "alphas").hidden = count < 2;
    this.part("part", "fixed").hidden = count > 1 && this.families.length > 1;
    const slider = this.part("control", "alpha");
    slider.max = count - 1;
    this.part("value", "stops").replaceChildren(
      ...this.family.operators.map((each) => node("span", { text: round(each.alpha) })),
    );
    this.say("out-size", `${operator.outHeight} \u00d7 ${operator.outWidth}`);
    this.output.grid(operator.outHeight, operator.outWidth);
    const share = before ? this.share(before) : [0.5, 0.5];
    state.place = this.placeAt(share);
    state.probe = null;
    this.panels = Array.from({ length: operator.components }, (_, c) => makePanel(this, c));
    this.part("part", "components").replaceChildren(...this.panels.map((panel) => panel.root));
    for (const name of ["examples", "images"]) this.part("part", name).hidden = !examples;
    this.part("part", "no-examples").hidden = Boolean(examples);
    if (examples) this.fillExamples();
    this.fillQuantities();
  }

  fillExamples() {
    const { examples, state } = this;
    state.image = Math.min(state.image, examples.count - 1);
    state.channel = Math.min(state.channel, examples.channels.length - 1);
    const channels = examples.channels.map((channel, i) => [i, `${channel + 1}`]);
    fillSelect(this.part("control", "channel"), channels, state.channel);
    this.part("part", "thumbs").replaceChildren(
      ...examples.labels.map((label, i) => {
        const radio = node("input", { type: "radio", name: `image-${this.name}`, value: i });
        radio.checked = i === state.image;
        radio.addEventListener("input", () => {
          state.image = i;
          this.show().then(() => this.readOut(false));
        });
        return node("label", {}, radio, examples.picture(i), node("span", { text: label }));
      }),
    );
  }

  /** What the output map may show: pooled values where there are examples, and how it was solved. */
  fillQuantities() {
    const { operator, examples, state } = this;
    const kinds = [
      ["gain", "separability gain"],
      ["radius", "radius in pixels"],
      ["gaps", "gap to the next"],
    ];
    if (examples) kinds.unshift(["pooled", "pooled value"]);
    const options = [];
    for (const [kind, words] of kinds) {
      for (let c = 0; c < operator.components; c++)
        options.push([`${kind} ${c}`, `${words}, component ${c + 1}`]);
    }
    if (!options.some(([value]) => value === state.quantity)) state.quantity = options[0][0];
    fillSelect(this.part("control", "quantity"), options, state.quantity);
  }

  // ---- the view: what the address of the page keeps, counted from 1 as people read it ----

  get view() {
    const { operator, state } = this;
    const row = Math.floor(state.place / operator.outWidth);
    const column = state.place % operator.outWidth;
    const position = `${row + 1},${column + 1}`;
    return { operator: state.family + 1, alpha: operator.alpha, position };
  }

  /** Goes to a view; what it does not say, or what is not there, stays as it is. */
  async open({ operator, alpha, position }) {
    const { state } = this;
    const asked = Number(alpha ?? NaN);
    const family = Number(operator) - 1;
    if (this.families[family]) {
      state.family = family;
      this.part("control", "family").value = family;
      state.alpha = this.operator ? this.nearestAlpha() : middleOf(this.family.operators);
    }
    if (asked >= 0) state.alpha = this.nearestAlpha(asked);
    await this.show();
    const [row, column] = (position ?? "").split(",").map((each) => Number(each) - 1);
    const within = (each, count) => Number.isInteger(each) && each >= 0 && each < count;
    const { outHeight, outWidth } = this.operator;
    if (within(row, outHeight) && within(column, outWidth)) this.go(row * outWidth + column);
  }

  // ---- moving ----

  share(operator) {
    const row = Math.floor(this.state.place / operator.outWidth);
    const column = this.state.place % operator.outWidth;
    return [(row + 0.5) / operator.outHeight, (column + 0.5) / operator.outWidth];
  }

  placeAt([down, right]) {
    const { outHeight, outWidth } = this.operator;
    return Math.floor(down * outHeight) * outWidth + Math.floor(right * outWidth);
  }

  point(row, column, byKey) {
    if (!this.operator || (this.state.held && !byKey)) return;
    this.go(row * this.operator.outWidth + column);
    this.readOut(byKey);
    const share = this.share(this.operator);
    for (const peer of this.peers) {
      if (peer !== this && peer.operator) peer.go(peer.placeAt(share));
    }
  }

  go(place) {
    if (place === this.state.place) return;
    this.state.place = place;
    this.refresh();
  }

  /** A click holds the place while the mouse goes elsewhere; the next one lets it go or moves it. */
  press(row, column) {
    if (!this.operator) return;
    const place = row * this.operator.outWidth + column;
    this.state.held = !(this.state.held && place === this.state.place);
    this.go(place);
    this.refresh();
    this.readOut(true);
  }

  probe(input, byKey) {
    this.state.probe = input;
    this.refresh();
    if (input !== null) this.readOut(byKey);
  }

  // ---- showing ----

  refresh() {
    const { operator, state } = this;
    const row = Math.floor(state.place / operator.outWidth);
    const column = state.place % operator.outWidth;
    this.output.at = [row, column];
    this.part("control", "alpha").value = state.alpha;
    const unit = operator.unit === "absolute" ? "" : ` (${operator.unit})`;
    this.say("alpha", `${round(operator.alpha)}${unit}`);
    this.part("control", "alpha").setAttribute("aria-valuetext", `alpha ${round(operator.alpha)}`);
    const told = this.families.length < 2 ? [this.family.label] : [];
    if (this.family.operators.length < 2) told.push(`alpha ${round(operator.alpha)}${unit}`);
    this.part("part", "fixed").textContent = told.join(", ");
    this.say("place", `Place at ${placeWords(row, column)}`);
    this.part("value", "held").hidden = !state.held;
    this.say("strength", `${Math.round(100 * state.strength)} %`);
    this.limit = state.scale === "place" ? operator.strongest(state.place) : operator.limit;
    this.part("part", "beneath").textContent = beneathWords(this);
    this.map = this.examples?.map(state.image, state.channel) ?? null;
    this.level = this.examples ? operator.mean[this.examples.channels[state.channel]] : 0;
    paintOutput(this);
    paintLegend(this);
    this.showOverview();
    this.panels.forEach((panel, component) => {
      paintWeights(this, panel.pad, component);
      showReadings(this, panel.root, component);
    });
  }

  /** The nine places change with the operator and the colors, not with every move. */
  showOverview() {
    const seen = `${this.state.family} ${this.state.alpha} ${isDark()}`;
    if (seen === this.overviewOf) return;
    this.overviewOf = seen;
    const blocks = overview(this.operator, (place) => {
      this.go(place);
      this.readOut(true);
    });
    this.part("part", "overview").replaceChildren(...blocks);
  }

  /** For those who listen: at once after a key, after a pause when the mouse moves on and on. */
  readOut(atOnce) {
    this.changed();
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.say("live", readingWords(this)), atOnce ? 0 : PAUSE);
  }
}

function middleOf(list) {
  return Math.floor((list.length - 1) / 2);
}
