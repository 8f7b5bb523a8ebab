"""A whole published set, fetched and unpacked below the data root; the user's own files stay.

Downloading one file is in `fetch.py`, unpacking in `archive.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foveapool.data.archive import unpack
from foveapool.data.fetch import Progress, fetch, no_progress
from foveapool.data.official import Edition, OfficialSet, find_edition, folders, look_for
from foveapool.files import held


def download(official: OfficialSet, root: Path, progress: Progress = no_progress) -> Path:
    """The folder with all files of the set, after fetching what is not there.

    An archive that is there already is verified and unpacked without a network, whichever edition
    it is. A second process waits for the first and then finds everything done.
    """
    home, _ = folders(official, root)
    if not _whole(official, root):
        with _alone(home, official, progress):
            if not _whole(official, root):
                _fill(home, official, root, progress)
    return find_edition(official, root).folder


def _whole(official: OfficialSet, root: Path) -> bool:
    found = look_for(official, root)
    return found is not None and not found.missing


def _fill(home: Path, official: OfficialSet, root: Path, progress: Progress) -> None:
    edition, folder = _begun(official, root) or (official.editions[0], home)
    for remote in edition.remotes:
        there = (folder / remote.name).exists()
        if remote.name in edition.files:
            if not there:
                fetch(remote, folder, progress)
            continue
        path = fetch(remote, folder, progress)
        progress(f"unpacking {path.name}", remote.size, remote.size)
        unpack(path, folder)
        if not there:
            path.unlink()


def _begun(official: OfficialSet, root: Path) -> tuple[Edition, Path] | None:
    """The edition of which an archive, a part of one or a file is there, and its folder."""
    for folder in folders(official, root):
        for edition in official.editions:
            names = [remote.name for remote in edition.remotes]
            names += [f"{name}.part" for name in names] + list(edition.files)
            if any((folder / name).exists() for name in names):
                return edition, folder
    return None


@contextmanager
def _alone(home: Path, official: OfficialSet, progress: Progress) -> Iterator[None]:
    """Holds the set's folder for this process; says so where it has to wait for another."""
    lock = home / ".lock"
    with ExitStack() as stack:
        try:
            stack.enter_context(held(lock))
        except BlockingIOError:
            progress(f"waiting for another download of {official.name}", 0, 0)
            stack.enter_context(held(lock, wait=True))
        yield
