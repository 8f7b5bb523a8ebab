// Numbers as they are read: with a true minus, and no more digits than are known.

const MINUS = "\u2212";

function typeset(text) {
  return text.replace("-", MINUS);
}

/** As many digits after the point as a number known to within `step` deserves. */
function digitsOf(step) {
  return step > 0 ? Math.min(8, Math.max(0, Math.ceil(-Math.log10(step)))) : 2;
}

function signed(value, digits) {
  const text = value.toFixed(digits);
  if (Number(text) === 0) return (0).toFixed(digits);
  return typeset(value > 0 ? `+${text}` : text);
}

/** A few significant digits, for numbers of any size. */
function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) {
    const [factor, power] = value.toExponential(1).split("e");
    return typeset(`${factor}\u00b710`) + superscript(Number(power));
  }
  const after = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return typeset(value.toFixed(after));
}

/** A round number as it is, without zeros behind it: alphas, ticks. */
function round(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return short(value);
  return typeset(String(Number(value.toPrecision(6))));
}

function superscript(power) {
  const raised = { "-": "\u207b", 0: "\u2070", 1: "\u00b9", 2: "\u00b2", 3: "\u00b3" };
  const rest = (digit) => String.fromCharCode(0x2070 + Number(digit));
  return [...String(power)].map((each) => raised[each] ?? rest(each)).join("");
}

/** Rows and columns are counted from 1 where people read them. */
function placeWords(row, column) {
  return `row ${row + 1}, column ${column + 1}`;
}
