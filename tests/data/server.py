"""A web server on this machine that can be made to misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from foveapool.data.official import Remote


@dataclass
class Site:
    """The files of a server, what was asked of it, and how it treats who asks.

    breaks: after how many bytes each of the next answers breaks off; None answers in full.
    """

    address: str
    files: dict[str, bytes]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    breaks: list[int | None] = field(default_factory=list)
    knows_ranges: bool = True
    shift: int = 0
    gate: Event | None = None

    def remote(self, name: str) -> Remote:
        """What someone would have published about the file `name`."""
        content = self.files[name]
        return Remote(f"{self.address}/{name}", len(content), md5(content).hexdigest())


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, span = self.path.rsplit("/", 1)[-1], self.headers.get("Range")
            site.asked.append((name, span))
            if site.gate:
                site.gate.wait(10)
            if name not in site.files:
                self.send_error(404)
                return
            content, start = site.files[name], 0
            if span and site.knows_ranges:
                start = int(span.removeprefix("bytes=").removesuffix("-")) + site.shift
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/*")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            most = site.breaks.pop(0) if site.breaks else None
            self.wfile.write(content[start:] if most is None else content[start : start + most])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://127.0.0.1:{server.server_port}", files)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
