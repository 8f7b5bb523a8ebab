"""The whole page in Chromium: at every width, in light and dark, for every reader, offline."""

import math

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from foveapool.pooling.operator import PoolingOperator
from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.examples import Examples
from foveapool.report.page import write_summaries
from foveapool.report.run_summary import Curve, Family, RunSummary
from foveapool.report.sources import EXAMPLE, summarize_example

from .conftest import ROOT, colors, find_grave_violations, resize
from .explorer import Explorer

pytestmark = pytest.mark.browser

SHOTS = ROOT / "build" / "browser"
WIDTHS = (390, 820, 1280)
NASTY = "<img src=x onerror=\"document.title='broken'\"></script><b>bold</b>"


def study(title="A study"):
    """A summary with everything that a page can show."""
    usual = {"n": 5, "network": "cnn", "data": "svhn-reduced", "epochs": "9"}
    place = {"pooling": "closed-form", "layer": "3", "norm": "l1"}
    example = summarize_example()
    return RunSummary(
        title,
        (("data", "svhn-reduced"), ("network", "cnn, width 64"), ("time training", "42 s")),
        example.families[1:],
        (
            Row("s", ERROR, 40.27, 0.46, **usual, pooling="baseline"),
            Row("s", ERROR, 21.98, 0.28, **usual, **place, alpha="5"),
            Row("s", ERROR, 19.9, math.nan, **{**usual, "n": 1}, pooling="sgd", layer="3"),
        ),
        tuple(
            Row("s", VALIDATION, 30 - alpha / 20, 1.0, **usual, **place, alpha=str(alpha))
            for alpha in (5, 25, 100)
        ),
        tuple(
            Curve(
                name, tuple(range(1, 30)), tuple(3 / epoch for epoch in range(1, 30)), (None,) * 29
            )
            for name in ("baseline", "baseline", "closed-form, layer 3")
        ),
        ("The study is not finished.",),
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "example": write_summaries([summarize_example()], folder / "example.html"),
        "study": write_summaries([study()], folder / "study.html"),
        "comparison": write_summaries([study("one"), summarize_example()], folder / "both.html"),
        "empty": write_summaries(
            [RunSummary("nothing", missing=("No operator.",))], folder / "e.html"
        ),
    }


def opened(browser, path):
    browser.get(path.as_uri())
    script = "return document.readyState"
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(script) == "complete")
    if browser.find_elements(By.CSS_SELECTOR, "[data-explorer]"):
        Explorer(
            browser,
            None,
            browser.find_element(By.CSS_SELECTOR, "[data-explorer]").get_attribute("data-explorer"),
        )


@pytest.mark.parametrize("name", ["example", "study", "comparison", "empty"])
def test_it_opens_from_disk_and_asks_for_nothing(browser, pages, name):
    opened(browser, pages[name])
    asked = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert asked == 0
    assert browser.execute_script("return navigator.onLine") is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["example", "study", "comparison"])
def test_it_fits_phones_tablets_and_desks(browser, pages, name, scheme):
    SHOTS.mkdir(parents=True, exist_ok=True)
    colors(browser, scheme)
    for width in WIDTHS:
        resize(browser, width)
        opened(browser, pages[name])
        size = browser.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.scrollHeight]"
        )
        assert size[0] <= width
        resize(browser, width, size[1])
        assert browser.save_screenshot(str(SHOTS / f"{name}-{width}-{scheme}.png"))


def test_it_opens_with_the_result(browser, pages):
    opened(browser, pages["study"])
    parts = [
        browser.find_element(By.CSS_SELECTOR, selector)
        for selector in (".verdict", ".told", ".result [data-chart] svg", "[data-explorer]")
    ]
    assert parts[0].text == "40.3 % \N{RIGHTWARDS ARROW} 22.0 % wrong, five seeds"
    assert "Of the other poolings, P by SGD, layer 3: 19.9 %." in parts[1].text
    words = [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".glossary b")]
    assert words == ["Pooling", "A component", "Alpha"]
    above = [
        browser.execute_script("return arguments[0].getBoundingClientRect().y", p) for p in parts
    ]
    assert above[0] < above[1] <= above[3] and above[0] < above[2] < above[3]
    assert above[2] < 450  # the chart stands beside the words


@pytest.mark.parametrize("name", ["example", "study"])
def test_a_phone_shows_the_weights_on_its_first_screen(browser, pages, name):
    resize(browser, 390, 664)  # what a phone of 844 pixels leaves beside its bars
    opened(browser, pages[name])
    bottoms = browser.execute_script(
        "return [...document.querySelectorAll('.verdict, [data-pad]')]"
        ".map((each) => each.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 4 and max(bottoms) <= 664, bottoms


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["example", "study", "comparison", "empty"])
def test_axe_finds_nothing_serious(browser, pages, axe, name, scheme):
    colors(browser, scheme)
    opened(browser, pages[name])
    for folded in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].click()", folded)
    assert find_grave_violations(browser, axe) == []


def test_the_colors_can_be_chosen_against_the_systems(browser, pages):
    opened(browser, pages["example"])

    def paper():
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    def map_():
        script = "return document.querySelector('canvas[data-component]').toDataURL()"
        return browser.execute_script(script)

    light = (paper(), map_())

    def shown(is_light):
        # A browser tells of other colors, and the page draws with them, a frame later.
        def holds(_):
            now = (paper(), map_())
            return now == light if is_light else now[0] != light[0] and now[1] != light[1]

        WebDriverWait(browser, 10).until(holds)

    for value, is_light in (("dark", False), ("light", True), ("", True)):
        radio = browser.find_element(By.CSS_SELECTOR, f'.theme [value="{value}"]')
        browser.execute_script("arguments[0].click()", radio)
        shown(is_light)
    colors(browser, "dark")
    shown(is_light=False)


def test_what_others_wrote_stays_text(browser, tmp_path):
    operator = PoolingOperator.load(EXAMPLE / "operator-3-alpha25.safetensors")
    examples = Examples.load(EXAMPLE / "examples-3-alpha1.safetensors")
    labels = (NASTY, *examples.labels[1:])
    named = Examples(examples.images, examples.maps, labels, examples.channels)
    summary = RunSummary(
        NASTY,
        ((NASTY, NASTY),),
        (Family(NASTY, (operator,), named), Family("other", (operator,))),
        (Row("s", ERROR, 20.0, 1.0, 5, pooling=NASTY, network=NASTY, data=NASTY),),
        curves=tuple(Curve(NASTY + n, (1, 2), (2.0, 1.0), (None, None)) for n in "ab"),
        missing=(NASTY,),
    )
    opened(browser, write_summaries([summary], tmp_path / "nasty.html"))
    assert browser.title == NASTY
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert browser.find_element(By.TAG_NAME, "h1").text == NASTY
    assert NASTY in browser.find_element(By.CSS_SELECTOR, ".thumbs label span").text
    assert browser.find_element(By.CSS_SELECTOR, "select option").text == NASTY
    assert NASTY in browser.find_element(By.CSS_SELECTOR, ".chart .name").text


def test_charts_show_their_numbers(browser, pages):
    opened(browser, pages["study"])
    errors = browser.find_element(By.CSS_SELECTOR, '[data-chart="errors"]')
    names = [each.text for each in errors.find_elements(By.CSS_SELECTOR, ".name")]
    assert names[1].startswith("closed form, layer 3, alpha 5, l1")
    assert "21.98 ± 0.28, paper 21.56 ± 0.53" in names[1]
    # Dots lie on the scale of the ticks: a straight line through all of them.
    ticks = [
        (float(each.text), float(each.get_attribute("x")))
        for each in errors.find_elements(By.CSS_SELECTOR, ".tick")
    ]
    (a, x_a), (b, x_b) = ticks[0], ticks[-1]
    dots = errors.find_elements(By.CSS_SELECTOR, ".dot circle")
    for dot, mean in zip(dots, (40.27, 21.98, 19.9), strict=True):
        wanted = x_a + (mean - a) / (b - a) * (x_b - x_a)
        assert float(dot.get_attribute("cx")) == pytest.approx(wanted, abs=0.1)
    loss = browser.find_element(By.CSS_SELECTOR, '[data-chart="loss"]')
    assert len(loss.find_elements(By.CSS_SELECTOR, ".chart-box .line")) == 3
    assert len(loss.find_elements(By.CSS_SELECTOR, ".key li")) == 2


def test_runs_side_by_side_move_together(browser, pages):
    first, second = (
        Explorer(browser, pages["comparison"] if i == 0 else None, i) for i in range(2)
    )
    first.point('[data-pad="output"] canvas', 0, 3, 4, 4)
    assert first.place == (0, 3) and second.place == (1, 7)
    second.point('[data-pad="output"] canvas', 7, 0, 8, 8)
    assert first.place == (3, 0) and second.place == (7, 0)
    first.wait_until(
        lambda: "operator-A=1&alpha-A=25&position-A=4,1&operator-B=1" in browser.current_url
    )
