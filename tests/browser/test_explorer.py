"""The explorer in Chromium: what is drawn and written is what the operator's file holds."""

import re

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from foveapool.pooling.operator import PoolingOperator
from foveapool.report.examples import Examples
from foveapool.report.page import write_summaries
from foveapool.report.sources import EXAMPLE, summarize_example

from .explorer import Explorer, number

pytestmark = pytest.mark.browser

IN, OUT = (16, 16), (8, 8)
OUTPUT = '[data-pad="output"] canvas'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_summaries([summarize_example()], tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def explorer(browser, page):
    return Explorer(browser, page)


def weights(alpha, place, component):
    """The row of a place, from the file."""
    operator = PoolingOperator.load(EXAMPLE / f"operator-2-alpha{alpha}.safetensors")
    return operator.weight[component, place[0] * OUT[1] + place[1]].double().numpy()


def assert_drawn(explorer, alpha, place):
    for component in (0, 1):
        wanted = weights(alpha, place, component)
        drawn, limit = explorer.drawn_weights(component, *IN)
        # Half a step of the row's 8 bits, and a step of the colors to each side.
        allowed = np.abs(wanted).max() / 254 + 1.5 * limit / 127
        np.testing.assert_allclose(drawn, wanted.clip(-limit, limit), atol=allowed)
        assert np.abs(drawn).max() > 20 * limit / 127  # not all of it is white


@pytest.mark.parametrize("scale", ["operator", "place"])
def test_the_drawn_weights_are_those_of_the_file(explorer, scale):
    explorer.choose("beneath", "none")
    explorer.choose("scale", scale)
    for place in ((0, 0), (3, 5), (7, 2)):
        explorer.point(OUTPUT, *place, *OUT)
        assert explorer.place == place
        assert_drawn(explorer, 50, place)


def test_the_slider_goes_through_the_alphas(explorer):
    explorer.choose("beneath", "none")
    slider = explorer.find('[data-control="alpha"]')
    assert explorer.text("alpha") == "50" and explorer.place == (4, 4)
    assert explorer.text("live") == ""  # nobody has asked for anything yet
    for key, alpha in ((Keys.ARROW_RIGHT, 400), (Keys.HOME, 5)):
        slider.send_keys(key)
        explorer.wait_until(lambda alpha=alpha: explorer.text("alpha") == str(alpha))
        assert slider.get_attribute("aria-valuetext") == f"alpha {alpha}"
        assert_drawn(explorer, alpha, (4, 4))


def test_the_weight_under_the_pointer_is_read(explorer):
    explorer.point(OUTPUT, 2, 6, *OUT)
    for row, column in ((5, 11), (0, 0), (15, 3)):
        explorer.point('canvas[data-component="1"]', row, column, *IN)
        for component in (0, 1):
            said = explorer.probe(component)
            assert said.startswith(f"row {row + 1}, column {column + 1}: ")
            shown = re.search(r": ([^ ]+)", said)[1]
            wanted = weights(50, (2, 6), component)
            step = np.abs(wanted).max() / 127
            digits = len(shown.partition(".")[2])
            assert 10.0**-digits <= step  # no digit is hidden that 8 bits would give
            allowed = 0.5 * step + 0.51 * 10.0**-digits
            assert abs(number(shown) - wanted[row * 16 + column]) <= allowed
            if wanted[row * 16 + column] > step:
                assert shown.startswith("+")
    assert explorer.place == (2, 6)


def test_the_pooled_value_is_what_the_layer_gives(explorer):
    examples = Examples.load(EXAMPLE / "examples-2-alpha5.safetensors")
    operator = PoolingOperator.load(EXAMPLE / "operator-2-alpha50.safetensors")
    explorer.browser.execute_script(
        "arguments[0].click()", explorer.root.find_elements(By.CSS_SELECTOR, ".thumbs input")[3]
    )
    explorer.point(OUTPUT, 5, 1, *OUT)
    map_ = examples.maps[3, 0].double().flatten()
    mean = operator.mean[examples.channels[0]]
    for component in (0, 1):
        row = operator.weight[component, 5 * 8 + 1].double()
        wanted = float(row @ map_ + mean * (1 - row.sum()))
        spread = float(map_.abs().sum() * row.abs().max() / 254)
        assert explorer.reading(component, "pooled value") == pytest.approx(
            wanted, abs=0.3 * spread
        )
    block = examples.maps[3, 0].double()[10:12, 2:4].mean()
    said = explorer.root.find_element(By.CSS_SELECTOR, ".component dd span").text
    assert number(said) == pytest.approx(float(block), rel=0.02)


def test_the_address_keeps_the_view(explorer, page):
    browser = explorer.browser
    assert "#" not in browser.current_url  # nothing has been chosen yet
    explorer.find('[data-control="family"]').send_keys(Keys.ARROW_DOWN)
    explorer.wait_until(lambda: explorer.text("alpha") == "25")
    explorer.find('[data-control="alpha"]').send_keys(Keys.ARROW_RIGHT)
    explorer.wait_until(lambda: explorer.text("alpha") == "100")
    explorer.point(OUTPUT, 3, 1, 4, 4)
    dark = browser.find_element(By.CSS_SELECTOR, '.theme [value="dark"]')
    browser.execute_script("arguments[0].click()", dark)
    wanted = "theme=dark&operator=2&alpha=100&position=4,2"
    explorer.wait_until(lambda: browser.current_url.endswith(f"page.html#{wanted}"))
    pictures = [explorer.drawn_weights(component, 8, 8)[0] for component in (0, 1)]

    browser.get("about:blank")
    browser.get(f"{page.as_uri()}#{wanted}")
    again = Explorer(browser, None)
    assert again.place == (3, 1) and again.text("alpha") == "100"
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert browser.find_element(By.CSS_SELECTOR, '.theme [value="dark"]').is_selected()
    for component in (0, 1):
        np.testing.assert_array_equal(again.drawn_weights(component, 8, 8)[0], pictures[component])
    # An address that is changed by hand is followed, as far as there is such a view.
    browser.execute_script("location.hash = 'operator=1&alpha=300&position=8,1'")
    again.wait_until(lambda: again.text("alpha") == "400" and again.place == (7, 0))
    browser.execute_script("location.hash = 'theme=<b>&operator=9&alpha=x&position=99,-1'")
    browser.execute_script("location.hash = 'operator=2'")
    again.wait_until(lambda: again.text("out-size") == "4 \N{MULTIPLICATION SIGN} 4")
    assert again.text("alpha") == "400"


def test_the_keyboard_is_enough(explorer):
    browser = explorer.browser
    pad = explorer.find('[data-pad="output"]')
    browser.execute_script("arguments[0].focus()", pad)
    keys = ActionChains(browser)
    keys.send_keys(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_LEFT).perform()
    assert explorer.place == (2, 3)
    spoken = "row 3, column 4, alpha 50. Component 1: strongest"
    explorer.wait_until(lambda: explorer.text("live").startswith(spoken))
    ActionChains(browser).send_keys(Keys.HOME, Keys.PAGE_DOWN).perform()
    assert explorer.place == (7, 0)
    ActionChains(browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_LEFT).perform()
    assert explorer.place == (7, 0)  # the map has an end
    width = browser.execute_script("return getComputedStyle(arguments[0]).outlineWidth", pad)
    assert width == "3px"
    # Every control can be reached, in the order in which it stands.
    reached = []
    for _ in range(12):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        reached.append(active.get_attribute("data-control") or active.get_attribute("data-pad"))
    assert [each for each in reached if each][:5] == [
        "quantity",
        "weights",
        "weights",
        "scale",
        "marks",
    ]


def test_a_key_on_a_weight_map_reads_the_next_weight(explorer):
    pad = explorer.find('[data-pad="weights"]')
    explorer.browser.execute_script("arguments[0].focus()", pad)
    ActionChains(explorer.browser).send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT).perform()
    assert explorer.probe(0).startswith("row 2, column 2: ")
    ActionChains(explorer.browser).send_keys(Keys.ESCAPE).perform()
    assert "Point at the map" in explorer.probe(0)


def test_a_click_holds_the_place_against_the_mouse(explorer):
    explorer.point(OUTPUT, 1, 1, *OUT)
    ActionChains(explorer.browser).click().perform()
    explorer.point(OUTPUT, 6, 6, *OUT)
    assert explorer.place == (1, 1) and explorer.find('[data-value="held"]').is_displayed()
    ActionChains(explorer.browser).click().perform()
    assert explorer.place == (6, 6)
    ActionChains(explorer.browser).click().perform()
    explorer.point(OUTPUT, 0, 7, *OUT)
    assert explorer.place == (0, 7) and not explorer.find('[data-value="held"]').is_displayed()


def test_a_finger_moves_the_place(explorer):
    browser = explorer.browser
    canvas = explorer.find(OUTPUT)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    area = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", canvas)

    def at(row, column):
        x = area["x"] + (column + 0.5) * area["width"] / 8
        return [{"x": x, "y": area["y"] + (row + 0.5) * area["height"] / 8}]

    def touch(kind, points):
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", at(1, 2))
    assert explorer.place == (1, 2)
    touch("touchMove", at(5, 6))
    touch("touchEnd", [])
    assert explorer.place == (5, 6)


def test_another_family_has_its_own_maps(explorer):
    select = explorer.find('[data-control="family"]')
    select.send_keys(Keys.ARROW_DOWN)
    explorer.wait_until(lambda: explorer.text("out-size") == "4 \N{MULTIPLICATION SIGN} 4")
    assert explorer.text("alpha") == "25"  # the nearest to 50 that it has
    explorer.choose("beneath", "none")
    explorer.point(OUTPUT, 3, 0, 4, 4)
    operator = PoolingOperator.load(EXAMPLE / "operator-3-alpha25.safetensors")
    wanted = operator.weight[0, 12].double().numpy()
    drawn, limit = explorer.drawn_weights(0, 8, 8)
    np.testing.assert_allclose(drawn, wanted.clip(-limit, limit), atol=2 * limit / 127)


def test_what_lies_beneath_can_be_chosen(explorer):
    def colors():
        script = "return arguments[0].toDataURL()"
        return explorer.browser.execute_script(script, explorer.find("canvas[data-component]"))

    seen = {colors()}
    for control, value in (("beneath", "image"), ("beneath", "map"), ("marks", None)):
        explorer.choose(control, value)
        seen.add(colors())
    assert len(seen) == 4
    said = explorer.find('[data-part="beneath"]')
    assert said.text.startswith("In gray beneath the colors: the feature map of channel ")
    explorer.choose("beneath", "none")
    assert said.text == ""


def test_positions_are_discs_and_weights_are_squares(explorer):
    """Gray discs on the page's own ground beside colored squares: neither is read as the other."""
    script = """
        const [canvas, rows] = arguments;
        const context = canvas.getContext("2d");
        const cell = canvas.width / rows;
        const at = (share) => [...context.getImageData(share * cell, share * cell, 1, 1).data];
        return [at(0.5), at(0.06)];
    """
    explorer.choose("scale", "place")
    explorer.point(OUTPUT, 0, 0, *OUT)
    explorer.point(OUTPUT, 4, 4, *OUT)  # so that the frame is elsewhere
    middle, corner = explorer.browser.execute_script(script, explorer.find(OUTPUT), 8)
    assert middle[3] == 255 and len(set(middle[:3])) <= 3 and corner[3] == 0
    assert max(middle[:3]) - min(middle[:3]) < 8
    weights = explorer.find('canvas[data-component="0"]')
    middle, corner = explorer.browser.execute_script(script, weights, 16)
    assert middle == corner and middle[3] == 255


def test_the_nine_places_lead_there(explorer):
    buttons = explorer.root.find_elements(By.CSS_SELECTOR, ".nine button")
    assert len(buttons) == 18
    assert buttons[0].get_attribute("aria-label") == "Component 1 at row 2, column 2: go there"
    explorer.browser.execute_script("arguments[0].click()", buttons[17])
    assert explorer.place == (6, 6)
