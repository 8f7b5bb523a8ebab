// Arrays from the page's text: base64, deflated, little-endian. packing.py is the other side.

async function unpacked(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

const LEVELS = 127;

/** A pooling: k components, an output place's weights over all places of the input map. */
class Operator {
  static async of(packed) {
    const operator = new Operator();
    const { height, width, outHeight, outWidth, components, alpha, norm, unit, limit } = packed;
    Object.assign(operator, {
      height,
      width,
      outHeight,
      outWidth,
      components,
      alpha,
      norm,
      unit,
      limit,
    });
    operator.inputs = height * width;
    operator.outputs = outHeight * outWidth;
    operator.rows = await unpacked(packed.rows, Int8Array);
    for (const name of ["scales", "separability", "average", "radius", "gaps", "mean"]) {
      operator[name] = await unpacked(packed[name], Float32Array);
    }
    return operator;
  }

  /** The weights of a place as whole numbers; `step` is what one of them is worth. */
  row(component, place) {
    const first = (component * this.outputs + place) * this.inputs;
    return this.rows.subarray(first, first + this.inputs);
  }

  step(component, place) {
    return this.scales[component * this.outputs + place] / LEVELS;
  }

  weight(component, place, input) {
    return this.row(component, place)[input] * this.step(component, place);
  }

  /** What the strongest color stands for: in the whole operator, or at one place. */
  strongest(place) {
    let found = 0;
    for (let c = 0; c < this.components; c++) {
      found = Math.max(found, this.scales[c * this.outputs + place]);
    }
    return found || 1;
  }

  /** The pooled value of a map at a place, P x + mean (1 - P 1), as the layer computes it. */
  pooled(map, mean, component, place) {
    const row = this.row(component, place);
    let total = 0;
    let sum = 0;
    for (let i = 0; i < row.length; i++) {
      total += row[i] * map[i];
      sum += row[i];
    }
    const step = this.step(component, place);
    return step * total + mean * (1 - step * sum);
  }

  /** The input places of the block that average pooling would take for a place. */
  block(place) {
    const along = (m, size, outputs) => [
      Math.floor((m * size) / outputs),
      Math.ceil(((m + 1) * size) / outputs),
    ];
    const [top, bottom] = along(Math.floor(place / this.outWidth), this.height, this.outHeight);
    const [left, right] = along(place % this.outWidth, this.width, this.outWidth);
    return { top, bottom, left, right };
  }
}

/** A few images and their feature maps before the pooling. */
class Examples {
  static async of(packed) {
    const examples = new Examples();
    const { count, labels, channels, height, width } = packed;
    Object.assign(examples, { count, labels, channels, height, width });
    examples.imageChannels = packed.imageChannels;
    examples.imageHeight = packed.imageHeight;
    examples.imageWidth = packed.imageWidth;
    examples.images = await unpacked(packed.images, Uint8Array);
    examples.levels = await unpacked(packed.maps, Uint8Array);
    examples.least = await unpacked(packed.least, Float32Array);
    examples.steps = await unpacked(packed.step, Float32Array);
    return examples;
  }

  /** The feature map of an image in one of the channels, in the network's own units. */
  map(image, channel) {
    const at = image * this.channels.length + channel;
    const size = this.height * this.width;
    const values = new Float32Array(size);
    for (let i = 0; i < size; i++) {
      values[i] = this.least[at] + this.steps[at] * this.levels[at * size + i];
    }
    return values;
  }

  /** The image as a canvas of its own size. */
  picture(image) {
    const size = this.imageHeight * this.imageWidth;
    const first = image * this.imageChannels * size;
    const plane = (i) => first + (this.imageChannels === 3 ? i * size : 0);
    return pixels(this.imageHeight, this.imageWidth, (i) => [
      this.images[plane(0) + i],
      this.images[plane(1) + i],
      this.images[plane(2) + i],
      255,
    ]);
  }
}

/** A canvas of one pixel a place, colored by color(i) -> [r, g, b, a], each up to 255. */
function pixels(height, width, color) {
  const canvas = document.createElement("canvas");
  canvas.height = height;
  canvas.width = width;
  const context = canvas.getContext("2d");
  const data = context.createImageData(width, height);
  for (let i = 0; i < height * width; i++) data.data.set(color(i), 4 * i);
  context.putImageData(data, 0, 0);
  return canvas;
}
