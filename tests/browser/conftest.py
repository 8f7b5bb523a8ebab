"""Chromium for the tests of this folder, without a network; skipped where it is not installed.

With FOVEAPOOL_BROWSER=required, as `make test-browser` sets it, what is missing is an error.
"""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"


REQUIRED = os.environ.get("FOVEAPOOL_BROWSER") == "required"

# Every file here imports selenium, also when its tests are only looked at and left out.
if not REQUIRED and importlib.util.find_spec("selenium") is None:
    collect_ignore_glob = ["*.py"]


def need(found, what):
    """Skips, or fails where the tests are required, unless something was found."""
    if not found:
        words = f"{what} is not installed; on Debian .ci/install-browser brings it"
        if REQUIRED:
            pytest.fail(words)
        pytest.skip(words)
    return found


def _program(*names):
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium():
    """The browser, started once, with the network off."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = need(_program("chromium", "chromium-browser"), "chromium")
    driver = need(_program("chromedriver"), "chromium-driver")
    # As root there is no sandbox; no name of a host is ever resolved; a machine without a screen
    # says that it has no mouse.
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--blink-settings=primaryHoverType=2,availableHoverTypes=2",
        "--force-device-scale-factor=1",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver)
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_script_timeout(30)
    browser.execute_cdp_cmd("Network.enable", {})
    go_offline(browser)
    yield browser
    browser.quit()


@pytest.fixture
def online(chromium):
    """The browser reaches servers on this machine while a test runs."""
    go_offline(chromium, False)
    yield
    go_offline(chromium)


@pytest.fixture
def browser(chromium):
    """The browser, wide and light; whatever the page logged as an error fails the test."""
    chromium.get_log("browser")
    resize(chromium, 1280)
    colors(chromium, "light")
    yield chromium
    errors = [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core."""
    return need(AXE.is_file(), "axe-core") and AXE.read_text("utf-8")


def go_offline(browser, offline=True):
    """Takes the network from the page, or gives it back."""
    # -1: as fast as it is.
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": offline, **conditions})


def find_grave_violations(browser, axe):
    """What axe-core calls serious or critical on the open page, with the first place of each."""
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 10
    return [
        (each["id"], each["nodes"][0]["html"])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def resize(browser, width, height=900):
    """Gives the page that many pixels; narrow ones are a phone's."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def colors(browser, scheme):
    """Tells the page that its reader likes it light or dark."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
