"""How much memory is free: what would take most of it is refused before it is begun."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_CPU = torch.device("cpu")


def get_free_memory(device: torch.device = _CPU) -> int | None:
    """The bytes that nobody uses there; None where nobody says."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        amounts = dict(line.split(":", 1) for line in lines if ":" in line)
        return 1024 * int(amounts["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_fits_memory(need: int, advice: str, device: torch.device = _CPU) -> None:
    """ValueError where so many bytes are more than half of the free memory there."""
    free = get_free_memory(device)
    if free is not None and need > free / 2:
        raise ValueError(
            f"needs {need / 1e9:.1f} GB of memory, wanted at most half of the {free / 1e9:.1f} GB "
            f"that are free; {advice}"
        )
