// The page begins here: the colors are chosen, explorers and charts take their places.

const data = JSON.parse(document.getElementById("page-data").textContent);
const explorers = [];

function chooseColors() {
  const choice = document.querySelector(".theme");
  choice.hidden = false;
  choice.addEventListener("input", (event) => {
    setTheme(event.target.value);
    keepView();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redraw();
}

function redraw() {
  for (const explorer of explorers) if (explorer.operator) explorer.refresh();
}

function mountExplorers() {
  for (const place of document.querySelectorAll("[data-explorer]")) {
    if (!("DecompressionStream" in window)) {
      const words =
        "This browser cannot unpack the weights (it has no DecompressionStream); a newer one can.";
      place.append(node("p", { class: "none", text: words }));
      continue;
    }
    const { families } = data.summaries[Number(place.dataset.explorer)];
    const explorer = new Explorer(families, explorers, place.dataset.explorer, keepView);
    explorers.push(explorer);
    place.append(explorer.root);
    explorer.open(told(explorer)).catch((error) => {
      explorer.root.replaceChildren(
        node("p", { class: "none", text: `The weights cannot be read: ${error.message}` }),
      );
    });
  }
}

/** How the address calls what it says of an explorer; of several, with the run's letter. */
function named(name, explorer) {
  if (data.summaries.length < 2) return name;
  return `${name}-${String.fromCharCode(65 + Number(explorer.name))}`;
}

function keepView() {
  keepInAddress(() => {
    const theme = document.documentElement.dataset.theme;
    const pairs = theme ? [["theme", theme]] : [];
    for (const explorer of explorers.filter((each) => each.operator)) {
      for (const [name, value] of Object.entries(explorer.view)) {
        pairs.push([named(name, explorer), value]);
      }
    }
    return pairs;
  });
}

/** What the address says of an explorer. */
function told(explorer) {
  const view = viewInAddress();
  const names = ["operator", "alpha", "position"];
  return Object.fromEntries(names.map((name) => [name, view?.get(named(name, explorer))]));
}

function openTheme() {
  const theme = viewInAddress()?.get("theme");
  const radio = document.querySelector(`.theme input[value="${CSS.escape(theme ?? "")}"]`);
  if (!theme || !radio) return;
  radio.checked = true;
  setTheme(theme);
}

openTheme();
chooseColors();
mountExplorers();
window.addEventListener("hashchange", () => {
  openTheme();
  for (const explorer of explorers) explorer.open(told(explorer));
});
for (const figure of document.querySelectorAll("[data-chart]")) {
  mountChart(figure, data.charts[figure.dataset.chart]);
}
