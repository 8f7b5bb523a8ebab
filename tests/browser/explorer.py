"""The explorer of a page as a reader meets it: what is drawn, what is written, how it moves."""

import re

import numpy as np
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

# The colors at the middle of every cell of a canvas that shows rows x columns.
_CELLS = """
const [canvas, rows, columns] = arguments;
const context = canvas.getContext("2d");
const found = [];
for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
  const x = Math.floor((c + 0.5) * canvas.width / columns);
  const y = Math.floor((r + 0.5) * canvas.height / rows);
  found.push([...context.getImageData(x, y, 1, 1).data.slice(0, 3)]);
}
return found;
"""


class Explorer:
    """One explorer of an open page."""

    def __init__(self, browser, path, number=0):
        self.browser = browser
        if path is not None:
            browser.get(path.as_uri())
        ready = f'[data-explorer="{number}"] [data-component]'
        WebDriverWait(browser, 10).until(lambda b: b.find_elements(By.CSS_SELECTOR, ready))
        self.root = browser.find_element(By.CSS_SELECTOR, f'[data-explorer="{number}"]')

    def find(self, selector):
        return self.root.find_element(By.CSS_SELECTOR, selector)

    def text(self, value):
        """What stands in a named field, also where it is only read aloud."""
        found = self.find(f'[data-value="{value}"]')
        return self.browser.execute_script("return arguments[0].textContent", found)

    def wait_until(self, holds):
        """Some things come a moment later: an operator is unpacked when it is first seen."""
        WebDriverWait(self.browser, 10).until(lambda _: holds())

    def choose(self, control, value=None):
        """Presses a radio button or a tick box."""
        which = f'[value="{value}"]' if value is not None else ""
        found = self.find(f'[data-control="{control}"]{which}')
        self.browser.execute_script("arguments[0].click()", found)

    def point(self, selector, row, column, rows, columns):
        """Moves the mouse to the middle of a cell of a map."""
        canvas = self.find(selector)
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        size = canvas.size
        x = (column + 0.5) * size["width"] / columns - size["width"] / 2
        y = (row + 0.5) * size["height"] / rows - size["height"] / 2
        ActionChains(self.browser).move_to_element_with_offset(canvas, round(x), round(y)).perform()

    @property
    def place(self):
        """Row and column of the output place, counted from 0."""
        row, column = map(int, re.findall(r"\d+", self.text("place")))
        return row - 1, column - 1

    def drawn_weights(self, component, rows, columns):
        """The weights that the colors stand for, by the legend that the page draws beside."""
        canvas = self.find(f'canvas[data-component="{component}"]')
        legend = self.find('[data-part="legend"]')
        steps = self.browser.execute_script("return arguments[0].width", legend)
        shown = np.array(self.browser.execute_script(_CELLS, canvas, rows, columns), float)
        scale = np.array(self.browser.execute_script(_CELLS, legend, 1, steps), float)
        nearest = ((shown[:, None] - scale[None]) ** 2).sum(-1).argmin(1)
        limit = number(self.text("high"))
        assert number(self.text("low")) == -limit
        return limit * (2 * nearest / (steps - 1) - 1), limit

    def reading(self, component, name):
        """A number from the list under a component's map."""
        panels = self.root.find_elements(By.CSS_SELECTOR, ".component")
        for line in panels[component].find_elements(By.CSS_SELECTOR, "dl > div"):
            if line.find_element(By.TAG_NAME, "dt").text == name:
                return number(line.find_element(By.TAG_NAME, "b").text)
        raise AssertionError(f"no {name} among the readings")

    def probe(self, component):
        """What is written of the place under the pointer."""
        return self.root.find_elements(By.CSS_SELECTOR, '[data-value="probe"]')[component].text


def number(text):
    """A number as the page writes it, with a true minus."""
    return float(re.search(r"[+-]?[\d.]+", text.replace("\N{MINUS SIGN}", "-"))[0])
