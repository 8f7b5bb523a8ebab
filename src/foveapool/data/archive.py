"""Unpacking a .tar.gz: only plain files, only below the folder, never over what is there.

The archive is looked through before anything is written, and refused as a whole if one member is
not what a data set needs.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

# Three times the largest archive we know of holds.
_MOST_BYTES = 600_000_000
_CHUNK = 1 << 20


def unpack(archive: Path, folder: Path) -> None:
    """Puts the files of the archive below `folder`, each whole or not at all.

    A file that exists stays as it is: the user may have put it there. One process at a time:
    callers hold the lock of `download.py`.
    """
    workshop = folder / f".{archive.name}.unpacking"
    shutil.rmtree(workshop, ignore_errors=True)
    try:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream) as tar:
            members = tar.getmembers()
            _check(archive, members)
            # tarfile takes an archive cut at a member's end for a whole one; the stream does not.
            while stream.read(_CHUNK):
                pass
            workshop.mkdir(parents=True)
            tar.extractall(workshop, members, filter="data")
        for member in members:
            target = folder / member.name
            if member.isfile() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(workshop / member.name, target)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{archive}: not a whole .tar.gz ({error}); remove it and download it again"
        ) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _check(archive: Path, members: list[tarfile.TarInfo]) -> None:
    """Refuses members that lead out of the folder, are no plain files, or are far too large."""
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name:
            trouble = "leads out of its folder"
        elif not (member.isfile() or member.isdir()):
            trouble = "is a link or a device, not a file or a folder"
        else:
            continue
        raise ValueError(
            f"{archive}: refused, nothing was unpacked: the member {member.name!r} {trouble}; it "
            "may be malicious, remove it and download it again"
        )
    total = sum(member.size for member in members)
    if total > _MOST_BYTES:
        raise ValueError(
            f"{archive}: refused, nothing was unpacked: it holds {total:,} bytes, wanted at most "
            f"{_MOST_BYTES:,}"
        )
