// Pad: a map of places that one can point at, with the mouse, a finger, a pen or the arrow keys.

class Pad {
  /**
   * box: the element that becomes the pad. on: { point(row, column, byKey), press(), leave() }.
   * finger: whether a finger that moves over it points, instead of scrolling the page.
   */
  constructor(box, label, on, finger) {
    this.box = box;
    this.on = on;
    this.rows = this.columns = 1;
    this.paint = () => {};
    this.at = [0, 0];
    this.canvas = document.createElement("canvas");
    box.append(this.canvas);
    box.tabIndex = 0;
    box.setAttribute("role", "application");
    box.setAttribute("aria-roledescription", "map");
    box.setAttribute("aria-label", label);
    box.classList.toggle("finger", finger);
    this.listen(finger);
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
  }

  grid(rows, columns) {
    this.rows = rows;
    this.columns = columns;
    this.box.style.aspectRatio = `${columns} / ${rows}`;
  }

  listen(finger) {
    const point = (event) => {
      const place = this.placeAt(event);
      if (place) this.on.point(...place, false);
    };
    this.box.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch" || finger) point(event);
    });
    this.box.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") {
        point(event);
      } else if (event.button === 0) {
        this.on.press?.(...(this.placeAt(event) ?? this.at));
      }
    });
    this.box.addEventListener("pointerleave", () => this.on.leave?.());
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  placeAt(event) {
    const area = this.canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - area.top) / area.height) * this.rows);
    const column = Math.floor(((event.clientX - area.left) / area.width) * this.columns);
    const inside = row >= 0 && row < this.rows && column >= 0 && column < this.columns;
    return inside ? [row, column] : null;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 4 : 1;
    const [row, column] = this.at;
    const moves = {
      ArrowUp: [row - far, column],
      ArrowDown: [row + far, column],
      ArrowLeft: [row, column - far],
      ArrowRight: [row, column + far],
      Home: [row, 0],
      End: [row, this.columns - 1],
      PageUp: [0, column],
      PageDown: [this.rows - 1, column],
    };
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      const within = (value, count) => Math.min(count - 1, Math.max(0, value));
      this.on.point(within(down, this.rows), within(right, this.columns), true);
    } else if ((event.key === "Enter" || event.key === " ") && this.on.press) {
      this.on.press(row, column);
    } else if (event.key === "Escape" && this.on.leave) {
      this.on.leave();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Draws with paint(context, width, height) in the pixels of the screen. */
  draw(paint) {
    this.paint = paint;
    this.redraw();
  }

  redraw() {
    const density = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * density);
    const height = Math.round(this.canvas.clientHeight * density);
    if (!width || !height) return;
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, width, height);
    this.paint(context, width, height, density);
  }

  /** A frame around places, with a halo so that it can be seen on every color. */
  frame(context, { top, left, bottom, right }, colors, thickness, dashes = []) {
    const [x, y] = [context.canvas.width / this.columns, context.canvas.height / this.rows];
    const box = [left * x, top * y, (right - left) * x, (bottom - top) * y].map(Math.round);
    context.setLineDash(dashes);
    for (const [color, width] of [
      [colors.halo, thickness * 2.4],
      [colors.line, thickness],
    ]) {
      context.strokeStyle = color;
      context.lineWidth = width;
      context.strokeRect(...box);
    }
    context.setLineDash([]);
  }
}
