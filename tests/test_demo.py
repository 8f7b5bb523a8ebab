"""`make demo`, on fewer images: it says what it found and leaves its files."""

import sys

import foveapool as fp
from foveapool import demo


def test_the_demo_leaves_an_operator_and_its_picture(tmp_path, monkeypatch, capsys):
    out = tmp_path / "demo"
    monkeypatch.setattr(sys, "argv", ["demo", "--images", "400", "--out", str(out)])
    demo.main()
    said = capsys.readouterr().out
    operator = fp.PoolingOperator.load(out / "operator.safetensors")
    assert operator.summary() in said
    assert str(out / "operator.png") in said
    assert (out / "operator.png").read_bytes().startswith(b"\x89PNG")
    assert float(operator.residuals.max()) <= 1e-8
