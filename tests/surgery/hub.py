"""A server on the loopback address that speaks what `push` and `load` need of the Hub."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


class Hub:
    """Repositories, each a list of commits, the files of a commit by name."""

    def __init__(self) -> None:
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.private: dict[str, bool] = {}
        self.calls: list[str] = []
        self.url = ""

    def create(self, name: str, private: bool) -> None:
        self.commits.setdefault(name, [{}])
        self.private.setdefault(name, private)

    def commit(self, name: str, lines: list[dict]) -> str:
        files = dict(self.commits[name][-1])
        for line in lines:
            if line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.commits[name].append(files)
        return self.number(name, len(self.commits[name]) - 1)

    def number(self, name: str, index: int) -> str:
        return hashlib.sha1(f"{name} {index}".encode()).hexdigest()

    def find(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """The number and the files of a commit: the last of `main`, or the one with that number."""
        commits = self.commits[name]
        for index, files in enumerate(commits):
            number = self.number(name, index)
            if revision == number or (revision == "main" and index == len(commits) - 1):
                return number, files
        return None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: object, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self._send(status, body, Content_Type="application/json", **headers)

    def _missing(self, code: str) -> None:
        self._json({"error": code}, 404, X_Error_Code=code)

    def _lookup(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        if name not in self.hub.commits:
            self._missing("RepoNotFound")
            return None
        found = self.hub.find(name, unquote(revision))
        if found is None:
            self._missing("RevisionNotFound")
        return found

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.hub.calls.append(f"{self.command} {path}")
        if match := re.fullmatch(r"/api/models/(\w+/\w+)/(revision|tree)/([^/]+)/?", path):
            name, what, revision = match.groups()
            if (found := self._lookup(name, revision)) is None:
                return
            number, files = found
            if what == "tree":
                listing = [
                    {"type": "file", "path": path, "size": len(text), "oid": _digest(text)}
                    for path, text in files.items()
                ]
                return self._json(listing)
            siblings = [{"rfilename": path} for path in files]
            facts = {"id": name, "modelId": name, "sha": number, "siblings": siblings}
            return self._json({**facts, "private": self.hub.private[name], "tags": []})
        if match := re.fullmatch(r"/(\w+/\w+)/resolve/([^/]+)/(.+)", path):
            name, revision, file = match.groups()
            if (found := self._lookup(name, revision)) is None:
                return None
            number, files = found
            if file not in files:
                return self._missing("EntryNotFound")
            tag = f'"{_digest(files[file])}"'
            return self._send(200, files[file], ETag=tag, X_Repo_Commit=number)
        return self._missing("EntryNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        self.hub.calls.append(f"POST {path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            hidden = asked.get("private") or asked.get("visibility") == "private"
            self.hub.create(name, bool(hidden))
            return self._json({"url": f"{self.hub.url}/{name}", "name": name, "id": name})
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if match := re.fullmatch(r"/api/models/(\w+/\w+)/preupload/main", path):
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self._json({"files": files})
        if match := re.fullmatch(r"/api/models/(\w+/\w+)/commit/main", path):
            number = self.hub.commit(match[1], [json.loads(line) for line in body.splitlines()])
            page = f"{self.hub.url}/{match[1]}/commit/{number}"
            return self._json({"success": True, "commitOid": number, "commitUrl": page})
        return self._missing("EntryNotFound")


def _digest(text: bytes) -> str:
    return hashlib.sha1(text).hexdigest()


@contextmanager
def serve(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """A hub on a free port of the loopback address, which the library takes for its own."""
    constants = pytest.importorskip("huggingface_hub.constants")
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
