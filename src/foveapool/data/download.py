"""Published sets from their servers: fetched, checked, and unpacked, each file whole or not at all.

A download that was cut off goes on. Of an archive only plain files are taken, only below the
folder, never over what is there; it is looked through before anything is written, and refused as a
whole if one member is not what a data set needs.

Reading never asks for a checksum. For those who want to know, `foveapool data check` finds out
whether files are the published ones, and what is in them.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

import torch

from foveapool._io import hold_lock
from foveapool.data.images import DataSet, Images
from foveapool.data.official import (
    Edition,
    OfficialSet,
    Remote,
    find_edition,
    find_files,
    list_folders,
)

# What is going on, the bytes that are done and the bytes there are.
Progress = Callable[[str, int, int], None]

_TIMEOUT = 30.0
_CHUNK = 1 << 18
_NETWORK_TROUBLE = (OSError, http.client.HTTPException)


def no_progress(what: str, done: int, total: int) -> None:
    """Says nothing."""


def compute_md5(path: Path) -> str:
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
    md5 = compute_md5(path)
    if md5 != remote.md5:
        raise ValueError(f"{path}: got MD5 {md5}, wanted {remote.md5}; {remedy}")


def _complete(part: Path, remote: Remote, progress: Progress) -> None:
    """Fetches into `part` until it has the right size, taking up a broken connection again."""
    while (before := _get_size(part)) != remote.size:
        if before > remote.size:
            part.unlink()
            before = 0
        trouble = _append(part, before, remote, progress)
        # A connection that brought something is taken up again; one that brought nothing is not.
        if (after := _get_size(part)) <= before:
            raise ConnectionError(
                f"{remote.url}: {trouble}; {after:,} of {remote.size:,} bytes have come. Try again "
                "to go on from there, or get the file by other means and put it in "
                f"{part.parent}"
            )


def _append(part: Path, start: int, remote: Remote, progress: Progress) -> str:
    """Adds what one connection brings to the `start` bytes that are there; says why it ended."""
    try:
        answer = _ask(remote.url, start)
    except _NETWORK_TROUBLE as error:
        if not remote.plain or isinstance(error, urllib.error.HTTPError):
            return _describe_failure(error)
        try:
            answer = _ask(remote.plain, start)
        except _NETWORK_TROUBLE as other:
            return f"{_describe_failure(error)}; {remote.plain}: {_describe_failure(other)}"
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
                    return _describe_failure(error)
                if not chunk:
                    return "the connection closed early"
                file.write(chunk)
                start += len(chunk)
    progress(f"downloading {remote.name}", start, remote.size)
    return "done"


def _ask(url: str, start: int) -> http.client.HTTPResponse:
    """The answer of a server that is asked for a file, from the byte `start` on."""
    request = urllib.request.Request(url, headers={"User-Agent": "foveapool"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)
    return answer


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


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _describe_failure(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return str(error.reason)
    return str(error) or type(error).__name__


def download(official: OfficialSet, root: Path, progress: Progress = no_progress) -> Path:
    """The folder with all files of the set, after fetching what is not there.

    An archive that is there already is verified and unpacked without a network, whichever edition
    it is. A second process waits for the first and then finds everything done.
    """
    home, _ = list_folders(official, root)
    if not _is_whole(official, root):
        with _claim_set(home, official, progress):
            if not _is_whole(official, root):
                _fetch_missing(home, official, root, progress)
    return find_edition(official, root).folder


def _is_whole(official: OfficialSet, root: Path) -> bool:
    found = find_files(official, root)
    return found is not None and not found.missing


def _fetch_missing(home: Path, official: OfficialSet, root: Path, progress: Progress) -> None:
    edition, folder = _find_begun(official, root) or (official.editions[0], home)
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


def _find_begun(official: OfficialSet, root: Path) -> tuple[Edition, Path] | None:
    """The edition of which an archive, a part of one or a file is there, and its folder."""
    for folder in list_folders(official, root):
        for edition in official.editions:
            names = [remote.name for remote in edition.remotes]
            names += [f"{name}.part" for name in names] + list(edition.files)
            if any((folder / name).exists() for name in names):
                return edition, folder
    return None


@contextmanager
def _claim_set(home: Path, official: OfficialSet, progress: Progress) -> Iterator[None]:
    """Holds the set's folder for this process; says so where it has to wait for another."""
    lock = home / ".lock"
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(lock))
        except BlockingIOError:
            progress(f"waiting for another download of {official.name}", 0, 0)
            stack.enter_context(hold_lock(lock, wait=True))
        yield


# Three times the largest archive we know of holds.
_MOST_BYTES = 600_000_000
_MOST_MEMBERS = 1000
_LONGEST_NAME = 255  # bytes, of a file or a folder


_ARCHIVE_CHUNK = 1 << 20


def unpack(archive: Path, folder: Path) -> None:
    """Puts the files of the archive below `folder`, each whole or not at all.

    A file that exists stays as it is: the user may have put it there. One process at a time:
    callers hold the lock of `download.py`.
    """
    workshop = folder / f".{archive.name}.unpacking"
    shutil.rmtree(workshop, ignore_errors=True)
    try:
        total = _check_size(archive)
        with _Stream(archive, total) as stream, tarfile.open(fileobj=stream) as tar:
            members = list(islice(tar, _MOST_MEMBERS + 1))
            _check(archive, members)
            workshop.mkdir(parents=True)
            for member in members:
                member.mode = None  # type: ignore[assignment]  # what the user's umask leaves
            tar.extractall(workshop, members, filter="data")
        for member in members:
            target = folder / member.name
            if member.isfile() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(workshop / member.name, target)
    except (
        *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile),
        *(OverflowError, ValueError),
    ) as error:
        if str(error).startswith(str(archive)):
            raise
        raise ValueError(
            f"{archive}: not a whole .tar.gz ({error}); remove it and download it again"
        ) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


class _Stream(gzip.GzipFile):
    """Asked for what a header claims, it makes no more room than for the bytes that there are."""

    def __init__(self, archive: Path, total: int) -> None:
        super().__init__(archive)
        self._total = total

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._total if size is None or size < 0 else min(size, self._total)
        return super().read(wanted)


def _check_size(archive: Path) -> int:
    """The bytes it unpacks to; refuses far too many, and what does not unpack to its end.

    tarfile takes an archive cut at a member's end for a whole one; the stream does not.
    """
    total = 0
    with gzip.open(archive) as stream:
        while chunk := stream.read(_ARCHIVE_CHUNK):
            total += len(chunk)
            if total > _MOST_BYTES:
                raise ValueError(
                    f"{archive}: refused, nothing was unpacked: it holds more than "
                    f"{_MOST_BYTES:,} bytes, which no archive that we know of does"
                )
    return total


def _check(archive: Path, members: list[tarfile.TarInfo]) -> None:
    """Refuses members that lead out of the folder, are no plain files, or are far too large."""
    files = {PurePosixPath(member.name) for member in members if member.isfile()}
    folders = {PurePosixPath(member.name) for member in members if member.isdir()}
    folders.update(*(path.parents for path in files))
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name:
            trouble = "leads out of its folder"
        elif not (member.isfile() or member.isdir()):
            trouble = "is a link or a device, not a file or a folder"
        elif path in files and path in folders:
            trouble = "is a file and a folder"
        elif any("\0" in part or len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
            trouble = "has a name that no file can have"
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
    if len(members) > _MOST_MEMBERS:
        raise ValueError(
            f"{archive}: refused, nothing was unpacked: it holds more than {_MOST_MEMBERS:,} "
            "files, wanted as many at most"
        )


@dataclass(frozen=True)
class FileCheck:
    """One file: how large it is, and whether it is the published one to the last byte."""

    path: Path
    size: int
    published: bool


def check_files(official: OfficialSet, root: Path) -> list[FileCheck]:
    """The files that a reader would take, compared with the published checksums."""
    found = find_edition(official, root)
    files = {found.folder / path: md5 for path, md5 in found.edition.files.items()}
    return [
        FileCheck(path, path.stat().st_size, compute_md5(path) == files[path]) for path in files
    ]


def count_labels(images: Images) -> tuple[int, ...]:
    """How many images each class has."""
    return tuple(torch.bincount(images.labels, minlength=len(images.classes)).tolist())


def check_classes(data: DataSet) -> None:
    """Raises ValueError if a class has no training image: no pooling can be fitted on that."""
    counts = zip(data.train.classes, count_labels(data.train), strict=True)
    if absent := [name for name, count in counts if not count]:
        raise ValueError(
            f"{data.name}: got no training image of class {', '.join(absent)}, wanted some of "
            "each; number the classes from 0 without gaps"
        )


def check_counts(official: OfficialSet, data: DataSet) -> None:
    """Raises ValueError if a class has another number of images than was published."""
    published = {"train": official.train_counts, "test": official.test_counts}
    for part, images in (("train", data.train), ("test", data.test)):
        for name, got, wanted in zip(
            official.classes, count_labels(images), published[part], strict=True
        ):
            if got != wanted:
                raise ValueError(
                    f"{data.name}: got {got:,} {part} images of class {name}, wanted {wanted:,} "
                    "as published: the labels are not those of the official files"
                )
