"""What the repository tells of itself is what it tests: Python versions, templates, addresses."""

import re
import tomllib
from pathlib import Path

import pytest

import foveapool

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read_yaml(name):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / ".github" / name).read_text("utf-8"))


def test_every_python_that_is_named_is_tested():
    job = read_yaml("workflows/checks.yml")["jobs"]["checks"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert ".ci/run" in [step.get("run") for step in job["steps"]]


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_a_form_for_issues_asks_for_something(name):
    form = read_yaml(f"ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert any(field.get("validations", {}).get("required") for field in form["body"])
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_the_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert PROJECT["version"] == foveapool.__version__
    assert f"\nversion: {foveapool.__version__}\n" in citation
    assert f"### {foveapool.__version__} in short" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_address_is_one_that_the_project_cites():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    for address in PROJECT["urls"].values():
        assert address.removeprefix("https://arxiv.org/abs/") in citation


def test_all_that_developers_install_is_pinned_by_hash():
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    hashed = r"^([a-z0-9-]+)==(\S+)(?: ;.*)? \\\n    --hash=sha256:[0-9a-f]{64}"
    pinned = dict(re.findall(hashed, lock, re.MULTILINE))
    assert {line.split("==")[0] for line in lock.splitlines() if line[0] not in "# "} == set(pinned)
    assert "//" not in lock
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    fixed = dict(re.findall(r"^([a-z-]+)==(\S+)$", constraints, re.MULTILINE))
    assert fixed.items() - pinned.items() == {("torch", fixed["torch"])}
    wanted = set(PROJECT["dependencies"]).union(*PROJECT["optional-dependencies"].values())
    names = {re.split(r"[^\w-]", each)[0].lower().replace("_", "-") for each in wanted}
    assert names - pinned.keys() == {"torch", "foveapool"}
