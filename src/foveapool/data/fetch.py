"""One file from an official address: resumed where it broke off, verified, then moved into place.

What has come so far lies beside the final name with `.part` behind it; the final name is only
ever given to a whole file with the right checksum. Unpacking and whole sets: `download.py`.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from foveapool.data.official import Remote

# What is going on, the bytes that are done and the bytes there are.
Progress = Callable[[str, int, int], None]

_TIMEOUT = 30.0
_CHUNK = 1 << 18
_NETWORK_TROUBLE = (OSError, http.client.HTTPException)


def no_progress(what: str, done: int, total: int) -> None:
    """Says nothing."""


def file_md5(path: Path) -> str:
    """The MD5 of a file, to compare with a published one; no defence against an attacker."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def fetch(remote: Remote, folder: Path, progress: Progress = no_progress) -> Path:
    """The path of the remote file in `folder`, fetched unless it is there; always verified.

    A file of that name which is not the official one is left alone and refused. One process at a
    time: callers hold the lock of `download.py`.
    """
    path = folder / remote.name
    if path.exists():
        _verify(path, remote, f"move it away to fetch the official one from {remote.url}")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    _complete(part, remote, progress)
    try:
        _verify(part, remote, "it was removed: try again")
    except ValueError:
        part.unlink()
        raise
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    return path


def _verify(path: Path, remote: Remote, remedy: str) -> None:
    size = path.stat().st_size
    if size != remote.size:
        raise ValueError(f"{path}: got {size:,} bytes, wanted {remote.size:,}; {remedy}")
    md5 = file_md5(path)
    if md5 != remote.md5:
        raise ValueError(f"{path}: got MD5 {md5}, wanted {remote.md5}; {remedy}")


def _complete(part: Path, remote: Remote, progress: Progress) -> None:
    """Fetches into `part` until it has the right size, taking up a broken connection again."""
    while (before := _size(part)) != remote.size:
        if before > remote.size:
            part.unlink()
            before = 0
        trouble = _append(part, before, remote, progress)
        # A connection that brought something is taken up again; one that brought nothing is not.
        if (after := _size(part)) <= before:
            raise ConnectionError(
                f"{remote.url}: {trouble}; {after:,} of {remote.size:,} bytes have come. Try again "
                "to go on from there, or get the file by other means and put it in "
                f"{part.parent}"
            )


def _append(part: Path, start: int, remote: Remote, progress: Progress) -> str:
    """Adds what one connection brings to the `start` bytes that are there; says why it ended."""
    request = urllib.request.Request(remote.url, headers={"User-Agent": "foveapool"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except _NETWORK_TROUBLE as error:
        return _reason(error)
    with answer:
        # A server that knows no ranges answers 200 and sends the file from its beginning.
        start = start if answer.status == 206 else 0
        _check_offer(answer, start, remote)
        with open(part, "ab" if start else "wb") as file:
            while start < remote.size:
                progress(f"downloading {remote.name}", start, remote.size)
                try:
                    chunk = answer.read(min(_CHUNK, remote.size - start))
                except _NETWORK_TROUBLE as error:
                    return _reason(error)
                if not chunk:
                    return "the connection closed early"
                file.write(chunk)
                start += len(chunk)
    progress(f"downloading {remote.name}", start, remote.size)
    return "done"


def _check_offer(answer: http.client.HTTPResponse, start: int, remote: Remote) -> None:
    """Refuses another range than the one asked for, and a file of another size."""
    span = answer.headers.get("Content-Range", "")
    if answer.status == 206 and not span.startswith(f"bytes {start}-"):
        raise ValueError(f"{remote.url}: got the range {span!r}, wanted it to begin at {start}")
    if answer.length is not None and start + answer.length != remote.size:
        raise ValueError(
            f"{remote.url}: the server offers {start + answer.length:,} bytes, wanted "
            f"{remote.size:,}; it is not the file that was published"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return str(error.reason)
    return str(error) or type(error).__name__
