"""What the documentation site needs beyond mkdocs.yml, and a check of the links of a built site.

README, CONTRIBUTING, SECURITY, CHANGELOG and the list of examples are pages of the site, too. Links
are written for readers of the repository; those that leave the site lose their address here.

    python .ci/site.py build/site      # says which links lead nowhere, and which leave the site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def follow_links(text: str, source: str) -> str:
    """A document of the repository with its links as the site has them.

    `source` is the document's path in the repository. A link to what is no part of the site is
    left as its text alone.
    """

    def follow(match: re.Match[str]) -> str:
        image, words, path, heading = match.groups()
        target = normpath(str(PurePosixPath(source).parent / path))
        if target in PAGES:
            inside = PAGES[target]
        elif target.startswith("docs/"):
            inside = target.removeprefix("docs/")
        else:
            return words
        here = PAGES.get(source, source.removeprefix("docs/"))
        start = str(PurePosixPath(here).parent)
        return f"{image}[{words}]({relpath(inside, start)}{heading or ''})"

    return LINK.sub(follow, text)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that stand outside of docs/ (MkDocs calls this)."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        text = follow_links((ROOT / source).read_text("utf-8"), source)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Has the links of a page stay on the site (MkDocs calls this)."""
    path = page.file.src_uri
    return markdown if path in PAGES.values() else follow_links(markdown, f"docs/{path}")


def on_post_page(output: str, **_: Any) -> str:
    """Names the search for screen readers, which the theme forgets (MkDocs calls this)."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


class _Page(HTMLParser):
    """The addresses that a page names, and the places that it can be entered at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.places |= {named[key] for key in ("id", "name") if key in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(named["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in named:
            self.loaded.append(named["src"])


def find_broken_links(site: Path) -> list[str]:
    """The links of a built site that lead nowhere, and what a page loads from elsewhere."""
    pages = {path.resolve(): _Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in sorted(pages.items()):
        name = path.relative_to(site.resolve())
        outside = [link for link in page.loaded if urlsplit(link).netloc]
        found += [f"{name}: loads {link} from elsewhere" for link in outside]
        for link in {*page.links, *page.loaded}:
            address, heading = urldefrag(link)
            if urlsplit(link).scheme or urlsplit(link).netloc or name == Path("404.html"):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name}: {link} leads nowhere")
            elif heading and target in pages and unquote(heading) not in pages[target].places:
                found.append(f"{name}: {link} has no such heading")
    return found


def main() -> None:
    """Checks the site in the folder that the command line names."""
    site = Path(sys.argv[1])
    count = len(list(site.rglob("*.html")))
    if not count:
        sys.exit(f"{site}: no pages, wanted a built site; run make docs")
    found = find_broken_links(site)
    print(*found, sep="\n", end="\n" if found else "")
    if found:
        sys.exit(f"{len(found)} links of {count} pages are broken")
    print(f"links: {count} pages, every link leads somewhere")


try:
    import griffe
except ImportError:  # the links can be checked without the packages that build the site
    pass
else:

    class ExampleSections(griffe.Extension):
        """Our docstrings show an `Example:`; Griffe knows `Examples:` as a section of code."""

        def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
            """Renames the section (Griffe calls this for each object that it has read)."""
            if obj.docstring is not None:
                text = obj.docstring.value
                obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.M)


if __name__ == "__main__":
    main()
