"""The documentation site in Chromium: search, widths, colors, every reader; nothing from elsewhere.

Search needs a server, so that the site is served on the loopback address.
"""

import functools
import http.server
import os
import subprocess
import sys
import threading

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from .conftest import ROOT, colors, find_grave_violations, resize

pytestmark = pytest.mark.browser

SHOTS = ROOT / "build" / "browser"
WIDTHS = (390, 820, 1280)
# One page of each kind: table and picture, code, tables, reference, pictures, long table.
PAGES = ("", "quick-start/", "faq/", "api/solve/", "gallery/", "alpha/")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, built strictly as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=300,
    )
    handler = functools.partial(_Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def reader(browser, online):
    """The browser, as it reaches this machine; every other name stays unknown to it."""
    return browser


def open_page(browser, address):
    browser.get(address)
    wait_until(browser, "return document.readyState === 'complete' && 'component$' in window")


def wait_until(browser, script):
    return WebDriverWait(browser, 20).until(lambda b: b.execute_script(script))


def test_search_finds_a_function_and_leads_to_it(reader, site):
    open_page(reader, site)
    reader.find_element(By.CSS_SELECTOR, "input[data-md-component=search-query]").click()
    field = reader.switch_to.active_element
    field.send_keys("solve_pooling")
    first = "document.querySelector('.md-search-result__link')"
    found = wait_until(reader, f"return {first} && {first}.href")
    assert "api/solve/" in found
    reader.execute_script(f"{first}.click()")
    wait_until(reader, "return location.pathname.endsWith('/api/solve/')")
    heading = reader.find_element(By.ID, "foveapool.solve_pooling")
    assert heading.is_displayed() and "solve_pooling" in heading.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_phones_tablets_and_desks(reader, site, page, scheme):
    SHOTS.mkdir(parents=True, exist_ok=True)
    colors(reader, scheme)
    for width in WIDTHS:
        resize(reader, width)
        open_page(reader, site + page)
        wide = reader.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width
        name = page.strip("/").replace("/", "-") or "home"
        assert reader.save_screenshot(str(SHOTS / f"site-{name}-{width}-{scheme}.png"))
    script = "return document.body.dataset.mdColorScheme"
    assert reader.execute_script(script) == {"light": "default", "dark": "slate"}[scheme]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_nothing_of_another_server(reader, site, page):
    open_page(reader, site + page)
    script = "return performance.getEntriesByType('resource').map((each) => each.name)"
    asked = reader.execute_script(script)
    assert asked and [each for each in asked if not each.startswith((site, "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious_on_a_page(reader, site, axe, page, scheme):
    colors(reader, scheme)
    open_page(reader, site + page)
    assert find_grave_violations(reader, axe) == []
