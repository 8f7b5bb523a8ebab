"""A page read back: its elements, its text, its data, and arrays unpacked as the browser does."""

import base64
import json
import zlib
from html.parser import HTMLParser

import numpy as np
import torch

import foveapool as fp


def operator(alpha=5.0, norm="l2", in_shape=(8, 10), out_shape=(4, 5), seed=0, **more):
    """A fitted operator of noise with something to find in it."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(120) % 4
    maps = torch.randn(120, 6, *in_shape, generator=generator)
    maps += torch.randn(4, 6, *in_shape, generator=generator)[labels]
    scatter = fp.compute_scatter(maps, labels)
    return fp.solve_pooling(scatter, out_shape, alpha=alpha, norm=norm, **more)


def unpacked(text, dtype):
    """The numbers that `packing.packed` put into a text."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


class Page(HTMLParser):
    """The tags of a page with their attributes, its text outside of scripts, and its scripts."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.text, self.scripts, self.styles = [], "", [], []
        self._inside = None
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._inside = tag
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag):
        self.text += " " if tag in ("td", "th", "li", "dt", "dd", "p", "label") else ""
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "style":
            self.styles[-1] += data
        else:
            self.text += data

    @property
    def words(self):
        return " ".join(self.text.split())

    @property
    def data(self):
        """What the page's script is given."""
        kinds = [attributes for tag, attributes in self.tags if tag == "script"]
        (number,) = [i for i, each in enumerate(kinds) if each.get("id") == "page-data"]
        return json.loads(self.scripts[number])
