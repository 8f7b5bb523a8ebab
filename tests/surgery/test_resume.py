"""A fit that was stopped goes on where it was, and gives the very operator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from foveapool import ClosedFormPooling
from foveapool.surgery import fit_files, passes, settings

from .toys import MAIN, POOL, SHORTCUT, loader, toy

LAYERS = [MAIN, SHORTCUT, POOL]


@pytest.fixture(autouse=True)
def eager(monkeypatch) -> None:
    """Sums are kept after each batch, not now and then."""
    monkeypatch.setattr(passes, "SAVE_SECONDS", -1.0)


class Breaking:
    """A loader that fails in the middle of a reading: its first, second, ..."""

    def __init__(self, reading: int, batch: int) -> None:
        self.reading, self.batch, self.started = reading, batch, 0

    def __len__(self) -> int:
        return len(loader())

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        return loader()

    def __iter__(self):
        self.started += 1
        for number, batch in enumerate(self.batches()):
            if (self.started, number) == (self.reading, self.batch):
                raise OSError("the disk is gone")
            yield batch


def counted(model: nn.Module) -> list[int]:
    """How many images each forward pass had; one is the dry run's."""
    sizes: list[int] = []
    model.stem.register_forward_hook(lambda module, given, _: sizes.append(len(given[0])))
    return sizes


# The first reading is a look at the first batch.
STOPS = {
    "in pass 1": (2, 3, [1, 10, 5, 10, 10, 10, 10, 5]),
    "at the start": (2, 0, [1, 10, 10, 10, 10, 5, 10, 10, 10, 10, 5]),
    "between the passes": (3, 0, [1, 10, 10, 10, 10, 5]),
    "in pass 2": (3, 4, [1, 5]),
}


@pytest.mark.parametrize("mode", ["replace", "after"])
@pytest.mark.parametrize(("reading", "batch", "remaining"), STOPS.values(), ids=STOPS)
def test_a_stopped_fit_reads_what_is_left_and_gives_the_very_operator(
    tmp_path, reading, batch, remaining, mode
):
    folder = tmp_path / "deep" / "sums"
    settings = {"class_cap": 12, "seed": 2}
    with pytest.raises(OSError, match="the disk is gone"):
        ClosedFormPooling(**settings).fit(
            toy(), Breaking(reading, batch), LAYERS, mode, resume=folder
        )
    model = toy()
    sizes = counted(model)
    fit = ClosedFormPooling(**settings).fit(model, loader(), LAYERS, mode, resume=folder)
    assert sizes == remaining
    wanted = ClosedFormPooling(**settings).fit(toy(), loader(), LAYERS, mode)
    for name in LAYERS:
        assert torch.equal(fit.operators_[name].weight, wanted.operators_[name].weight)
    assert not folder.exists()


def test_a_fit_that_was_stopped_twice_goes_on_twice(tmp_path):
    for reading, batch in ((2, 2), (2, 4), (3, 1), (2, 3)):
        with pytest.raises(OSError, match="the disk is gone"):
            ClosedFormPooling().fit(toy(), Breaking(reading, batch), MAIN, resume=tmp_path / "sums")
    note = json.loads((tmp_path / "sums" / "process-0" / "position.json").read_text())
    assert (note["number"], note["batches"], note["total"]) == (2, 3, 5)
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")
    wanted = ClosedFormPooling().fit(toy(), loader(), MAIN)
    assert torch.equal(fit.operator_.weight, wanted.operator_.weight)


def test_an_unsolvable_fit_keeps_its_sums(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("B: got no positive matrix")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="B: got no positive"):
        patch.setattr(settings, "solve_pooling", refuse)
        ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")
    model = toy()
    sizes = counted(model)
    ClosedFormPooling().fit(model, loader(), MAIN, resume=tmp_path / "sums")
    assert sizes == [1]


def half_done(folder: Path, reading: int = 2) -> dict[str, bytes]:
    with pytest.raises(OSError, match="the disk is gone"):
        ClosedFormPooling().fit(toy(), Breaking(reading, 3), MAIN, resume=folder)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def nudged() -> nn.Module:
    """Another network, though the sum of its weights is the same."""
    model = toy()
    with torch.no_grad():
        model.stem.weight.copy_(model.stem.weight.flip(0))
    return model


OTHERS = {
    "another network": (nudged, {}, {}),
    "another layer": (toy, {}, {"layer": POOL}),
    "another mode": (toy, {}, {"mode": "after"}),
    "another type": (toy, {}, {"autocast": torch.bfloat16}),
    "another seed": (toy, {"seed": 1}, {}),
    "another weighting": (toy, {"weighting": "frequency"}, {}),
}


@pytest.mark.parametrize(("make", "settings", "more"), OTHERS.values(), ids=OTHERS)
def test_sums_of_another_fit_are_neither_used_nor_touched(tmp_path, make, settings, more):
    before = half_done(tmp_path / "sums")
    with pytest.raises(ValueError, match=r"sums of another fit .* give another folder or delete"):
        ClosedFormPooling(**settings).fit(
            make(), loader(), **{"layer": MAIN, **more}, resume=tmp_path / "sums"
        )
    assert contents(tmp_path / "sums") == before


def test_sums_of_more_processes_are_those_of_another_fit(monkeypatch):
    alone = fit_files.fingerprint_fit(toy(), {})
    assert fit_files.fingerprint_fit(toy(), {}) == alone
    monkeypatch.setattr(fit_files, "is_distributed", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert fit_files.fingerprint_fit(toy(), {}) != alone


def test_settings_that_only_matter_for_solving_may_change(tmp_path):
    half_done(tmp_path / "sums")
    ClosedFormPooling(alpha=3.0).fit(toy(), loader(), MAIN, resume=tmp_path / "sums")


def relabeled() -> list[tuple[Tensor, Tensor]]:
    return [(images, labels.flip(0)) for images, labels in loader()]


@pytest.mark.parametrize("batches", [loader(50)[::-1], relabeled()], ids=["images", "labels"])
@pytest.mark.parametrize("reading", [2, 3], ids=["in pass 1", "in pass 2"])
def test_sums_do_not_go_on_with_other_data(tmp_path, reading, batches):
    before = half_done(tmp_path / "sums", reading=reading)
    message = r"sums: got sums that were begun with another .*shuffle=False.*give another folder"
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling().fit(toy(), batches, MAIN, resume=tmp_path / "sums")
    assert contents(tmp_path / "sums") == before


def test_a_pass_does_not_go_on_in_another_order_though_the_look_before_it_was_the_same(tmp_path):
    class Turning(Breaking):
        """Begins with another batch in each reading, the same ones in each process."""

        def batches(self) -> list[tuple[Tensor, Tensor]]:
            return loader()[self.started :] + loader()[: self.started]

    with (
        pytest.warns(
            UserWarning, match="resume: the loader's first batch is another in each"
        ) as told,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        ClosedFormPooling().fit(toy(), Turning(3, 3), MAIN, resume=tmp_path / "sums")
    assert [warning.filename for warning in told] == [__file__]
    with pytest.raises(ValueError, match="the loader does not keep its order"):
        ClosedFormPooling().fit(toy(), Turning(9, 0), MAIN, resume=tmp_path / "sums")


def test_sums_that_are_refused_do_not_stay(tmp_path):
    half_done(tmp_path / "sums", reading=3)
    with pytest.raises(ValueError, match=r"as in the first pass; .*process-0 were deleted: fit ag"):
        ClosedFormPooling().fit(toy(), [*loader(), loader()[0]], MAIN, resume=tmp_path / "sums")
    assert not (tmp_path / "sums").exists()
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")
    wanted = ClosedFormPooling().fit(toy(), loader(), MAIN)
    assert torch.equal(fit.operator_.weight, wanted.operator_.weight)


def test_sums_of_classes_that_are_refused_do_not_stay(tmp_path):
    images, labels = loader()[-1]
    rare = [*loader()[:-1], (images, labels + torch.tensor([0, 0, 0, 0, 2]))]
    with pytest.raises(ValueError, match=r"fewer than two samples .* were deleted: fit again"):
        ClosedFormPooling().fit(toy(), rare, MAIN, resume=tmp_path / "sums")
    ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")


def test_a_file_that_is_gone_is_named(tmp_path):
    half_done(tmp_path / "sums")
    for path in (tmp_path / "sums").rglob("*.safetensors"):
        path.unlink()
    message = r"1-3-0\.safetensors: no such file.* damaged or .*: delete .*process-0 to begin anew"
    with pytest.raises(FileNotFoundError, match=message):
        ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")


DAMAGES = {
    "half a note": ("position.json", '{"fingerpr'),
    "an empty note": ("position.json", ""),
    "a note of something else": ("position.json", "[1, 2]"),
    "a number for a note": ("position.json", "7"),
    "a note of another version": ("position.json", '{"number": 1, "batches": 3, "total": null}'),
    "half of the sums": ("1-3-0.safetensors", "half"),
}


@pytest.mark.parametrize(("name", "text"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_named_with_the_way_out(tmp_path, name, text):
    half_done(tmp_path / "sums")
    folder = tmp_path / "sums" / "process-0"
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}.* damaged or .*: delete {folder} to begin anew"):
        ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")
    shutil.rmtree(folder)
    ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")


def test_only_the_latest_sums_are_kept_and_other_files_stay(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    half_done(tmp_path)
    kept = ["1-3-0.safetensors", "lock", "mine.txt", "position.json"]
    assert sorted(contents(tmp_path)) == kept
    ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path)
    assert sorted(contents(tmp_path)) == ["mine.txt"]


def test_sums_are_saved_at_intervals_and_not_after_each_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "SAVE_SECONDS", 1000.0)
    written = []
    original = fit_files.FitCheckpoint.write
    monkeypatch.setattr(
        fit_files.FitCheckpoint,
        "write",
        lambda self, at, takers: written.append(at) or original(self, at, takers),
    )
    ClosedFormPooling().fit(toy(), loader(), MAIN, resume=tmp_path / "sums")
    assert [(at.number, at.batches) for at in written] == [(1, 5), (2, 0), (2, 5)]


def test_a_file_in_the_place_of_the_folder_is_named_before_anything_is_summed(tmp_path):
    file, told = tmp_path / "mine.txt", []
    file.write_text("mine")
    with pytest.raises(NotADirectoryError, match="wanted a folder for unfinished sums; give anoth"):
        ClosedFormPooling().fit(toy(), loader(), MAIN, resume=file, progress=told.append)
    assert not told and file.read_text() == "mine"


def test_two_fits_do_not_work_in_one_folder(tmp_path):
    class Meeting(Breaking):
        """A loader in the middle of which another fit comes to the same folder."""

        def __iter__(self):
            for number, batch in enumerate(super().__iter__()):
                if (self.started, number) == (self.reading, 1):
                    with pytest.raises(BlockingIOError, match="works in this folder"):
                        ClosedFormPooling().fit(toy(), loader(), LAYERS, resume=tmp_path / "sums")
                yield batch

    meeting = Meeting(2, -1)
    fit = ClosedFormPooling().fit(toy(), meeting, LAYERS, resume=tmp_path / "sums")
    assert meeting.started == 3 and not (tmp_path / "sums").exists()
    alone = ClosedFormPooling().fit(toy(), loader(), LAYERS)
    assert torch.equal(fit.operators_[MAIN].weight, alone.operators_[MAIN].weight)
