"""What is known of memory, and what is refused for its sake."""

import pytest
import torch

from foveapool import _memory

CPU = torch.device("cpu")


def test_free_memory_is_known_here():
    free = _memory.get_free_memory(CPU)
    assert free is not None and 10**6 < free < 10**14


def test_where_linux_does_not_say_what_is_free_all_memory_counts_if_it_is_known(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(_memory, "Path", lambda name: tmp_path / "absent")
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert _memory.get_free_memory(CPU) == 4_096_000

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", unknown)
    assert _memory.get_free_memory(CPU) is None


def test_what_needs_more_than_half_of_it_is_refused(monkeypatch):
    monkeypatch.setattr(_memory, "get_free_memory", lambda device: 2 * 10**9)
    _memory.check_fits_memory(10**9, "take less")
    with pytest.raises(ValueError, match=r"needs 1\.1 GB .*half of the 2\.0 GB.*; take less"):
        _memory.check_fits_memory(11 * 10**8, "take less")
