"""Adapters for others: what their model card says, and the way to the Hub and back."""

from __future__ import annotations

import re

import pytest
import torch

import foveapool as fp
from foveapool.surgery.sharing import CARD

from .adapters import CONFIG, WEIGHTS, fitted, modes, saved
from .hub import serve
from .toys import MAIN, pictures, toy


@modes
def test_the_card_says_what_stands_there_and_what_it_was_fitted_on(tmp_path, mode):
    model = fitted(mode, layers=[MAIN])
    fp.save(model, tmp_path, data="toys | of\ntwo kinds", figures={"test error, %": 12.84000001})
    card = (tmp_path / CARD).read_text()
    assert card.startswith("---\nlibrary_name: foveapool\n")
    instead = {"replace": "the pooling instead of the layer", "after": "the layer at stride 1"}
    assert f"| {MAIN} | Conv2d | {instead[mode]}" in card
    assert "| 8 x 8 to 4 x 4 |" in card and "| is fixed |" in card
    assert "\ntoys \\| of two kinds\n" in card
    assert re.search(rf"^- {MAIN}: \d+ images of 3 classes, alpha \S+ \(auto\), l2", card, re.M)
    assert "| test error, % | 12.84 |" in card
    assert f'fp.load(model, "{tmp_path.name}")' in card


def test_what_was_fitted_on_is_still_known_after_a_round_trip(tmp_path):
    saved(tmp_path / "first", layers=[MAIN])
    fresh = toy()
    fp.load(fresh, tmp_path / "first")
    fp.save(fresh, tmp_path / "second")
    first, second = ((tmp_path / name / CARD).read_text() for name in ("first", "second"))
    assert first.replace('"first"', '"second"') == second


def test_a_card_of_ones_own_stays(tmp_path):
    saved(tmp_path, layers=[MAIN])
    ours = (tmp_path / CARD).read_text()
    (tmp_path / CARD).write_text("My poolings, and what I think of them.\n")
    saved(tmp_path, layers=[MAIN])
    assert (tmp_path / CARD).read_text() == "My poolings, and what I think of them.\n"
    (tmp_path / CARD).write_text(ours + "\nold words\n")
    saved(tmp_path, layers=[MAIN])
    assert (tmp_path / CARD).read_text() == ours


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serve(monkeypatch, tmp_path / "cache") as server:
        yield server


def test_what_is_pushed_can_be_loaded(hub):
    model = fitted(layers=[MAIN])
    page = fp.push(model, "me/toys", data="toys", figures={"error": 3}, private=True)
    assert page == f"{hub.url}/me/toys"
    (_, files) = hub.commits["me/toys"]
    assert sorted(files) == sorted([CARD, CONFIG, WEIGHTS]) and hub.private["me/toys"]
    assert b'fp.load(model, "hf://me/toys")' in files[CARD] and b"| error | 3 |" in files[CARD]
    fresh = toy()
    done = fp.load(fresh, "hf://me/toys")
    assert [change.names for change in done.changes] == [(MAIN,)]
    assert torch.equal(fresh(pictures()), model(pictures()))


def test_an_older_revision_can_be_loaded(hub):
    older, newer = fitted(layers=[MAIN]), fitted(layers=[MAIN], components=1)
    fp.push(older, "me/toys")
    fp.push(newer, "hf://me/toys", message="One component")
    assert len(hub.commits["me/toys"]) == 3
    for revision, model in ((f"@{hub.number('me/toys', 1)}", older), ("", newer)):
        fresh = toy()
        fp.load(fresh, f"hf://me/toys{revision}")
        assert torch.equal(fresh(pictures()), model(pictures()))


def test_nothing_but_an_adapters_files_is_fetched(hub, tmp_path):
    fp.push(fitted(layers=[MAIN]), "me/toys")
    hub.commits["me/toys"][-1]["pytorch_model.bin"] = b"not for us"
    fp.load(toy(), "hf://me/toys")
    assert [call for call in hub.calls if "pytorch_model" in call] == []
    assert list((tmp_path / "cache").rglob("pytorch_model*")) == []


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("hf://me/nobody", FileNotFoundError, "hf://me/nobody: no such repository"),
        ("hf://me/toys@older", FileNotFoundError, "got no revision older"),
        ("hf://me", ValueError, "name: got 'me', wanted user/name"),
        ("hf://me/toys/more", ValueError, "wanted user/name"),
    ],
)
def test_an_address_that_leads_nowhere_is_told(hub, address, error, message):
    hub.create("me/toys", private=False)
    model = toy()
    with pytest.raises(error, match=message):
        fp.load(model, address)
    assert [type(module) for module in model.modules()] == [type(m) for m in toy().modules()]


def test_a_repository_without_an_adapter_is_told(hub):
    hub.create("me/empty", private=False)
    with pytest.raises(FileNotFoundError, match=f"{CONFIG}: no such file"):
        fp.load(toy(), "hf://me/empty")


@pytest.mark.parametrize("name", ["toys", "me/toys@main", "me/", ""])
def test_a_name_that_is_none_is_refused_before_anything_is_made(hub, name):
    with pytest.raises(ValueError, match="wanted user/name"):
        fp.push(fitted(layers=[MAIN]), name)
    assert hub.calls == []
