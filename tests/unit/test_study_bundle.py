"""What travels to a GPU machine: parts are joined again, and an encoder is the same wherever it is unpacked."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.gpu import study_bundle


def test_parts_are_joined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(study_bundle, "PART_BYTES", 300)
    weights = {"w": torch.tensor([0.1, -2.0]).half(), "ids": torch.tensor([7])}
    packed = tmp_path / "here" / "packed-small"
    packed.mkdir(parents=True)
    save_file(weights, packed / "model.safetensors")
    (packed / "config.json").write_text("{}")
    (tmp_path / "here" / "data").mkdir()
    (tmp_path / "here" / "data" / "text").write_text("a line\n")
    study_bundle.write_parts(tmp_path / "here", ["data", "packed-small"], tmp_path / "out")
    parts = sorted((tmp_path / "out").glob("part*"))
    assert len(parts) > 1
    assert all(chunk.stat().st_size <= 300 for part in parts for chunk in part.iterdir())
    study_bundle.unpack(parts, tmp_path / "there")
    assert (tmp_path / "there" / "data" / "text").read_text() == "a line\n"
    found = load_file(tmp_path / "there" / "small" / "model.safetensors")
    assert found["w"].dtype == torch.float32
    assert torch.equal(found["w"], weights["w"].float())
    assert torch.equal(found["ids"], weights["ids"])
    with pytest.raises(
        SystemExit, match=rf"not all parts of one bundle: \w+-01-of-0{len(parts)}\. Copy what is missing"
    ):
        study_bundle.unpack(parts[:1], tmp_path / "elsewhere")
    (chunk,) = parts[0].iterdir()
    chunk.rename(chunk.with_name(f"other{chunk.name[5:]}"))  # of a bundle that was packed again meanwhile
    with pytest.raises(SystemExit, match="a bundle that was packed again is another one"):
        study_bundle.unpack(parts, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_a_study_takes_along_what_its_cells_and_its_report_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(Path(study_bundle.__file__).parent)
    bundle = importlib.import_module("bundle")
    monkeypatch.setattr(bundle, "LEFT_OUT", {*bundle.LEFT_OUT})
    monkeypatch.setattr(bundle, "collect", lambda python, _: found.update(bundle.closure(python)))
    monkeypatch.setattr(study_bundle.subprocess, "run", lambda *_, **__: None)
    found: dict[str, str] = {}
    study_bundle.install("3.12", tmp_path / "wheels", tmp_path / "site")
    assert {"ray", "scipy", "matplotlib", "contourpy", "deepspeed", "transformers"} <= found.keys()
    assert not {"torch", "numpy", "pandas", "mlflow"} & found.keys()
