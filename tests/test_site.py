"""The documentation site's own code: links of the repository become links of the site, or are told.

tests/browser/test_site.py opens the site.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / ".ci" / "site.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("source", "text", "wanted"),
    [
        ("README.md", "[alpha](docs/alpha.md)", "[alpha](alpha.md)"),
        ("README.md", "![gain](docs/images/gain.png)", "![gain](images/gain.png)"),
        ("README.md", "[cite](CITATION.cff)", "cite"),
        ("docs/quick-start.md", "[it](../examples/README.md#run)", "[it](examples.md#run)"),
        ("docs/tutorials/mix.md", "[all](../../README.md)", "[all](../index.md)"),
        ("docs/alpha.md", "[paper](https://arxiv.org/abs/1)", "[paper](https://arxiv.org/abs/1)"),
    ],
)
def test_links_of_the_repository_stay_on_the_site(site, source, text, wanted):
    assert site.follow_links(text, source) == wanted


def test_links_that_lead_nowhere_are_found(site, tmp_path):
    (tmp_path / "there.html").write_text('<h1 id="top">There</h1>', "utf-8")
    good = '<a href="there.html#top">1</a><a href="https://arxiv.org">2</a><a href="./">3</a>'
    (tmp_path / "index.html").write_text(good, "utf-8")
    assert site.find_broken_links(tmp_path) == []
    bad = (
        '<a href="gone.html">1</a><a href="there.html#end">2</a><script src="//a.b/c.js"></script>'
    )
    (tmp_path / "bad.html").write_text(bad, "utf-8")
    assert sorted(site.find_broken_links(tmp_path)) == [
        "bad.html: gone.html leads nowhere",
        "bad.html: loads //a.b/c.js from elsewhere",
        "bad.html: there.html#end has no such heading",
    ]


def test_the_search_has_a_name(site):
    page = '<div class="md-search" role="dialog">'
    assert site.on_post_page(page) == '<div class="md-search" role="dialog" aria-label="Search">'
