// The page begins here: the colors are chosen, explorers and charts take their places.

const data = JSON.parse(document.getElementById("page-data").textContent);
const explorers = [];

function chooseColors() {
  const choice = document.querySelector(".theme");
  choice.hidden = false;
  choice.addEventListener("input", (event) => {
    document.documentElement.dataset.theme = event.target.value;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
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
    const { families } = data.accounts[Number(place.dataset.explorer)];
    const explorer = new Explorer(families, explorers, place.dataset.explorer);
    explorers.push(explorer);
    place.append(explorer.root);
    explorer.show().catch((error) => {
      explorer.root.replaceChildren(
        node("p", { class: "none", text: `The weights cannot be read: ${error.message}` }),
      );
    });
  }
}

chooseColors();
mountExplorers();
for (const figure of document.querySelectorAll("[data-chart]")) {
  mountChart(figure, data.charts[figure.dataset.chart]);
}
