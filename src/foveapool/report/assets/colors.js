// Colors of what is drawn on canvases, for light and dark. Red counts for, blue against: these two
// stay apart for color-blind eyes, and both leave the neutral middle in lightness too.

const RAMPS = {
  light: {
    neutral: [246, 245, 241],
    against: [
      [110, 168, 220],
      [9, 58, 122],
    ],
    for: [
      [233, 140, 110],
      [140, 22, 16],
    ],
    ink: [29, 29, 27],
    line: "#1d1d1b",
    halo: "rgba(255, 255, 255, 0.85)",
  },
  dark: {
    neutral: [34, 35, 33],
    against: [
      [52, 116, 188],
      [178, 217, 255],
    ],
    for: [
      [190, 76, 48],
      [255, 206, 180],
    ],
    ink: [236, 234, 228],
    line: "#ffffff",
    halo: "rgba(0, 0, 0, 0.7)",
  },
};

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function ramp() {
  return isDark() ? RAMPS.dark : RAMPS.light;
}

/** The color of a weight from -1 to 1, to be laid over whatever is beneath: weak ones are clear. */
function tint(share, colors) {
  const [middle, end] = share < 0 ? colors.against : colors.for;
  const strength = Math.min(1, Math.abs(share));
  if (strength <= 0.5) return [...middle, 510 * strength];
  const beyond = 2 * strength - 1;
  return [...middle.map((each, i) => each + beyond * (end[i] - each)), 255];
}

/** Nothing for 0, the color of ink for 1: how maps and pooled values are drawn. */
function shade(share, colors) {
  const strength = Math.min(1, Math.max(0, share));
  return [...colors.neutral.map((each, i) => each + strength * (colors.ink[i] - each)), 255];
}

function css(color) {
  return `rgb(${color.join(" ")})`;
}

/** Least and largest of some numbers; a range of its own where they are all the same. */
function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return low <= high ? [low, high] : [0, 0];
}
