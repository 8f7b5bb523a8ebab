// The view in the page's address, behind the #, so that it can be shared and opened again:
// theme, and for each explorer operator, alpha and position.

const VIEW_PAUSE = 350; // ms without a change before the address is written; browsers limit how often

/** What the address tells of a view, as URLSearchParams; null where it tells of none. */
function viewInAddress() {
  const text = location.hash.slice(1);
  return text.includes("=") ? new URLSearchParams(text) : null;
}

/** Writes the [name, value] pairs of `view()` into the address, once nothing has changed for a while. */
function keepInAddress(view) {
  clearTimeout(keepInAddress.pause);
  keepInAddress.pause = setTimeout(() => {
    const text = new URLSearchParams(view()).toString().replaceAll("%2C", ",");
    try {
      history.replaceState(null, "", `#${text}`);
    } catch {
      // Inside of another page, a notebook's say, this one has no address of its own.
    }
  }, VIEW_PAUSE);
}
