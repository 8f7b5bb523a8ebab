"""What README and docs say can be done: code blocks, studies, commands, and the figures quoted."""

import re
from pathlib import Path

import pytest

import foveapool as fp
from foveapool import robustness
from foveapool.study.presets import read_preset

from .surgery.hub import serve

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

# Tests of their own run these, and test_integrations.py the pages on other libraries.
RUN_ELSEWHERE = {
    "tutorials/fine-tune-after.md",
    "tutorials/mix.md",
    "tutorials/two-processes.md",
    "tutorials/your-own-network.md",
    "robustness.md",
}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), flags=re.S | re.M)


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def pages_that_run() -> list[str]:
    names = [name_of(path) for path in PAGES[1:] if blocks(path, "python")]
    return [n for n in names if n not in RUN_ELSEWHERE and not n.startswith("integrations/")]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub on the loopback address, for the page that shares adapters."""
    with serve(monkeypatch, tmp_path / "cache") as server:
        yield server


@pytest.mark.parametrize("name", pages_that_run())
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch, request):
    if name == "tutorials/sharing.md":
        request.getfixturevalue("hub")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(DOCS / name, "python"):
        exec(compile(block, name, "exec"), names)


def test_the_pages_that_others_run_are_there():
    assert all(blocks(DOCS / name, "python") for name in RUN_ELSEWHERE)


def test_no_block_has_a_language_that_is_not_checked():
    found = {
        language
        for path in PAGES
        for language in re.findall(r"^```(\w+)$", path.read_text("utf-8"), flags=re.M)
    }
    assert found <= {"python", "toml"}


def studies() -> list[tuple[str, str]]:
    whole = [
        (name_of(path), block)
        for path in PAGES[1:]
        for block in blocks(path, "toml")
        if "[data]" in block
    ]
    assert whole
    return whole


@pytest.mark.parametrize(("name", "text"), studies(), ids=[name for name, _ in studies()])
def test_a_study_that_is_shown_can_be_read(name, text, tmp_path):
    text = re.sub(r'"folder:my-images"( .*)?$', '"street-digits"', text, flags=re.M)
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    study = read_preset(str(tmp_path / "mine.toml"))
    assert study.searches and len(study.arms) > 1


def command_lines(text: str) -> list[list[str]]:
    """The words of each `foveapool ...` line of a page's shell blocks, without what explains it."""
    lines = re.findall(r"^ {4}foveapool (.*)$", text, flags=re.M)
    return [re.split(r"\s+#|\s{2,}", line)[0].split() for line in lines]


def misunderstood(words: list[str]) -> str:
    """What `foveapool` would not understand of a command: its name or an option."""
    typer = pytest.importorskip("typer.main")
    from foveapool.cli.main import application

    command = typer.get_command(application())
    for word in words:
        commands = getattr(command, "commands", None)
        if commands is None:
            break
        if "|" in word:  # one of several
            word = word.split("|")[0]
        if word.startswith("-"):
            break
        if word not in commands:
            return word
        command = commands[word]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    options = [word.strip("[]") for word in words if word.strip("[]").startswith("--")]
    return next((each for each in options if each not in known), "")


def test_the_commands_that_are_shown_exist():
    shown = [(path.name, words) for path in PAGES for words in command_lines(path.read_text())]
    assert len(shown) > 30
    assert [(name, words) for name, words in shown if misunderstood(words)] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("study demo --dry-run", ""), ("studie demo", "studie"), ("study demo --dry", "--dry")],
)
def test_a_command_that_is_not_there_is_noticed(line, wrong):
    assert misunderstood(line.split()) == wrong


def figures_of(text: str) -> set[float]:
    """The numbers with decimals of a text, without their signs; addresses have none."""
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return {float(found) for found in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]\d)", text)}


def table_figures() -> set[float]:
    """All that stands in the tables that `make results` fills."""
    tables = "".join(
        table
        for path in PAGES
        for table in re.findall(r"<!-- table.*?<!-- end -->", path.read_text("utf-8"), flags=re.S)
    )
    return figures_of(tables)


@pytest.mark.parametrize("name", ["faq.md", "method-card.md"])
def test_figures_that_are_quoted_stand_in_a_table(name):
    text = re.sub(r"<!-- table.*?<!-- end -->", "", (DOCS / name).read_text("utf-8"), flags=re.S)
    quoted, tables = figures_of(text), table_figures()
    assert len(quoted) > 0 or name != "faq.md"
    assert quoted - tables == set()


def test_every_public_name_stands_once_in_the_reference():
    text = "".join(path.read_text("utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    shown = re.findall(r"^::: (\S+)$", text, flags=re.M)
    assert len(shown) == len(set(shown))
    wanted = {f"foveapool.{name}" for name in fp.__all__}
    wanted |= {f"foveapool.robustness.{name}" for name in robustness.__all__}
    assert wanted <= set(shown)
