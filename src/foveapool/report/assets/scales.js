// From numbers to pixels, and the round numbers along the way.

/** `at` gives the pixel of a number; `ticks` are round numbers within. */
function scaleOf(values, isLog, from, to, wanted, whole = false) {
  let [low, high] = extent(values);
  // Within less than a factor of four, equal steps are easier to read.
  if (isLog && low > 0 && high / low >= 4) {
    const at = (value) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);
    return { at, ticks: logTicks(low, high, wanted) };
  }
  const spare = (high - low || Math.abs(high) || 1) * 0.06;
  [low, high] = [low >= 0 ? Math.max(0, low - spare) : low - spare, high + spare];
  const at = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { at, ticks: linearTicks(low, high, wanted, whole ? 1 : 0) };
}

function linearTicks(low, high, wanted, least) {
  const rough = Math.max(least, (high - low) / wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, wanted) {
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      ticks.push(...factors.map((factor) => factor * 10 ** power));
    }
    const within = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    if (within.length <= wanted || factors.length === 1)
      return within.length > 1 ? within : [low, high];
  }
  return [low, high];
}
