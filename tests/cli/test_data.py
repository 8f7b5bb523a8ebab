"""`foveapool data`: what it prints, and how it ends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from foveapool.cli import data as command
from foveapool.data import registry
from foveapool.data.download import compute_md5

from ..data.oracles import TINY_CIFAR10, TINY_SVHN, write_cifar10, write_svhn
from ..data.server import serving


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Two published sets, but tiny."""
    sets = {"cifar10": TINY_CIFAR10, "svhn": TINY_SVHN, "svhn-reduced": TINY_SVHN}
    for module in (registry, command):
        monkeypatch.setattr(module, "OFFICIAL", sets)
    return sets


def run(*arguments: object, root: Path, columns: str = "300") -> tuple[int, str, str]:
    """Exit code, output, and the error stream."""
    line = [str(argument) for argument in (*arguments, "--data-root", root)]
    done = CliRunner().invoke(command.app, line, env={"COLUMNS": columns, "TERM": "dumb"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def rows(table: str) -> dict[str, list[str]]:
    lines = [re.split(r" {2,}", line.strip()) for line in table.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_list_says_what_is_there_and_where(tmp_path):
    write_cifar10(tmp_path, "binary")
    write_svhn(tmp_path / "svhn")
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    code, out, _ = run("list", root=tmp_path)
    found = rows(out)
    assert code == 0
    assert found["cifar10"] == ["20", "10", "10", "yes", "170 MB", str(tmp_path)]
    assert found["svhn"] == ["60", "10", "10", "in part", "246 MB", str(tmp_path / "svhn")]
    assert found["svhn-reduced"][:4] == ["3", "10", "10", "in part"]
    assert found["street-digits"][3:] == ["yes", "-", "drawn when asked for"]
    assert {"folder:PATH", "npz:PATH"} < found.keys()
    assert rows(run("list", root=tmp_path, columns="40")[1]) == found  # paths are not cut


def test_list_of_an_empty_root_says_where_a_download_would_go(tmp_path):
    _, out, _ = run("list", root=tmp_path / "none")
    assert rows(out)["cifar10"][3:] == ["no", "170 MB", str(tmp_path / "none" / "cifar10")]


def test_check_counts_and_compares(tmp_path, tiny):
    write_cifar10(tmp_path, "binary")
    path = "cifar-10-batches-bin/test_batch.bin"
    edition = replace(TINY_CIFAR10.editions[0], test={path: compute_md5(tmp_path / path)})
    tiny["cifar10"] = replace(TINY_CIFAR10, editions=(edition,))
    code, out, _ = run("check", root=tmp_path)
    assert code == 0
    assert f"{tmp_path / path}: 30,730 bytes, as published" in out
    assert "data_batch_5.bin: 12,292 bytes, not the published bytes" in out
    assert "cifar10: train 20 images of 3 x 32 x 32; 2 in each of 10 classes" in out
    assert "cifar10: reads well" in out
    assert "svhn" not in out


def test_check_of_a_damaged_set_ends_with_2_after_the_others(tmp_path):
    write_cifar10(tmp_path, "binary")
    write_svhn(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(b"short")
    code, out, err = run("check", root=tmp_path)
    assert code == 2
    assert "data_batch_1.bin: got 5 bytes, wanted 12,292" in err
    assert len(err.splitlines()) == 1
    assert "svhn: reads well" in out


def test_check_notices_labels_that_were_not_published(tmp_path):
    write_cifar10(tmp_path, "binary")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[0] = (content[0] + 1) % 10
    path.write_bytes(content)
    code, _, err = run("check", "cifar10", root=tmp_path)
    assert code == 2
    assert "the labels are not those of the official files" in err


def test_check_takes_sets_of_every_kind(tmp_path):
    write_svhn(tmp_path)
    code, out, _ = run("check", "svhn-reduced", root=tmp_path)
    assert (code, "svhn-reduced: train 3 images" in out) == (0, True)
    code, _, err = run("check", f"npz:{tmp_path}/mine.npz", root=tmp_path)
    assert (code, "mine.npz: no such file" in err) == (2, True)


def test_check_notices_classes_without_a_training_image(tmp_path):
    images, labels = np.zeros((3, 8, 8), np.uint8), np.array([0, 2, 5])
    arrays = {"images": images, "labels": labels}
    parts = {f"{part}_{key}": arrays[key] for part in ("train", "test") for key in arrays}
    np.savez(tmp_path / "mine.npz", **parts)
    code, out, err = run("check", f"npz:{tmp_path}/mine.npz", root=tmp_path)
    assert code == 2 and "reads well" not in out
    assert "no training image of class 1, 3, 4, wanted some of each; number the classes" in err
    np.savez(tmp_path / "mine.npz", **{**parts, "train_labels": np.array([0, 1, 2])})
    assert run("check", f"npz:{tmp_path}/mine.npz", root=tmp_path)[0] == 2
    ours = {**parts, "train_labels": np.array([0, 1, 2]), "test_labels": np.array([0, 2, 2])}
    np.savez(tmp_path / "mine.npz", **ours)
    assert run("check", f"npz:{tmp_path}/mine.npz", root=tmp_path)[0] == 0


def test_check_of_an_empty_root_says_so(tmp_path):
    code, out, _ = run("check", root=tmp_path)
    assert code == 0
    assert f"nothing in {tmp_path}: foveapool data download NAME" in out


def test_a_packed_copy_is_listed_and_checked(tmp_path):
    write_cifar10(tmp_path / "here", "binary")
    there = tmp_path / "there"
    code, _, err = run("pack", "cifar10", there, "--data-seed", 3, root=tmp_path / "here")
    assert code == 0, err
    _, out, _ = run("list", root=there)
    assert rows(out)["cifar10"][3:] == ["packed", "170 MB", str(there / "cifar10-0.npz")]
    code, out, _ = run("check", root=there)
    assert code == 0 and "cifar10: reads well" in out
    assert f"{there / 'cifar10-0.npz'}: read instead of the published files" in out


def test_pack_into_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, err = run("pack", "cifar10", tmp_path / "file", root=tmp_path)
    assert code == 2 and f"{tmp_path / 'file'} is no folder that you may write to" in err


@pytest.mark.parametrize("verb", ["check", "download"])
def test_an_unknown_name_is_one_line_and_2(tmp_path, verb):
    code, _, err = run(verb, "cifar-10", root=tmp_path)
    assert code == 2
    assert err.startswith("error: cifar-10: no such data set; wanted one of cifar10, ")
    assert len(err.splitlines()) == 1


def test_nothing_to_download_for_what_is_drawn(tmp_path):
    code, _, err = run("download", "street-digits", root=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "street-digits: has no published files" in err


def test_download_fetches_and_says_where(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    write_svhn(tmp_path / "made")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    with serving(files) as site:
        (edition,) = TINY_SVHN.editions
        remotes = tuple(site.remote(remote.name) for remote in edition.remotes)
        tiny["svhn"] = replace(TINY_SVHN, editions=(replace(edition, remotes=remotes),))
        tiny["svhn-reduced"] = tiny["svhn"]
        code, out, err = run("download", "svhn", "svhn-reduced", root=tmp_path / "root")
    assert (code, out) == (0, f"svhn: in {tmp_path / 'root' / 'svhn'}\n")
    assert "downloading train_32x32.mat" in err
    assert len(site.asked) == 2
    assert run("check", "svhn", root=tmp_path / "root")[0] == 0


def test_download_without_a_network_is_one_line_and_2(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (edition,) = TINY_SVHN.editions
    away = tuple(
        replace(remote, url=f"http://127.0.0.1:9/{remote.name}") for remote in edition.remotes
    )
    tiny["svhn"] = replace(TINY_SVHN, editions=(replace(edition, remotes=away),))
    code, _, err = run("download", "svhn", root=tmp_path)
    assert code == 2
    assert "error: http://127.0.0.1:9/train_32x32.mat: " in err
    assert "Traceback" not in err
