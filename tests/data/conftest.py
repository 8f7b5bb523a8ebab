"""A local web server for the tests that download."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server import Site, serving


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving({}) as site:
        yield site
