"""Whose run the files of a run folder are: damage to config.yaml, and whole files of another run, are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.results.run_folders import INPUTS, score, whole_run, write_run
from tests.unit.train.test_newest_checkpoint import write_checkpoint
from xalign_ray import evaluation, exports
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import check_identity, describe_saved, read_saved, write_saved
from xalign_ray.errors import DataError
from xalign_ray.results.run import read_run
from xalign_ray.verbs.opened_run import open_run
from xalign_ray.work.artifacts import check_file, hash_file, write_json
from xalign_ray.work.run_folder import RunFolder

EXCHANGED = ("config.yaml", "manifest.json", "events.jsonl", "export/config.json", "evaluation/tatoeba/scores.json")


def make_run(folder: Path, seed: int) -> tuple[Path, str]:
    """A finished run with an export and a score, and its fingerprint."""
    fingerprint = describe_saved(load_recipe("tiny/mlm", [f"seed={seed}"]), INPUTS)["fingerprint"]
    start, *rest = whole_run(folder.parent / "data")
    events = [start | {"fingerprint": fingerprint}, *rest]
    scores = {"tatoeba": [score(run=f"tiny-mlm-{fingerprint[:8]}")]}
    write_run(folder, seed=seed, scores=scores, events=events)
    (folder / "export").mkdir()
    write_json(folder / "export" / "config.json", {"xalign_fingerprint": fingerprint})
    return folder, fingerprint


@pytest.mark.parametrize("name", EXCHANGED)
def test_a_file_of_another_run_is_refused_by_every_reader(tmp_path: Path, name: str) -> None:
    (run, own), (other, others) = (make_run(tmp_path / str(seed), seed) for seed in (0, 1))
    assert len(read_run(run).scores)
    saved = read_saved(run)
    check_identity(run, saved)
    shutil.copy(other / name, run / name)
    readers = [read_saved, read_run, open_run, lambda folder: evaluation.find_encoder(str(folder)), exports.export]
    for reader in [*readers, lambda folder: check_identity(folder, saved)]:
        with pytest.raises(Exception, match=rf"{own[:8]}.*{others[:8]}|{others[:8]}.*{own[:8]}") as refused:
            reader(run)
        assert name in str(refused.value) or name == "config.yaml"


def test_every_changed_bit_of_the_config_is_noticed(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path / "run", 0)
    path = run / "config.yaml"
    content = path.read_bytes()
    for place in range(0, len(content), 131):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"config\.yaml (is damaged|is of another run)"):
            read_saved(run)
        with pytest.raises(DataError, match=r"config\.yaml"):
            exports.export(run)


def test_a_changed_value_under_a_new_hash_has_another_fingerprint(tmp_path: Path) -> None:
    run, own = make_run(tmp_path / "run", 0)
    saved = read_saved(run)
    saved["model"]["num_attention_heads"] = 6
    write_saved(run, saved)
    with pytest.raises(DataError, match=rf"config\.yaml has the fingerprint {own[:8]}, and its keys give"):
        exports.export(run)


def test_a_run_that_has_not_finished_says_so_to_evaluate(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", events=whole_run(tmp_path / "data")[:3])
    with pytest.raises(DataError, match=r"is a run, and it has not finished, and has no export yet\. Give its"):
        evaluation.find_encoder(str(run))


def test_an_export_names_the_step_of_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    for step in (20, 40):
        write_checkpoint(tmp_path, step)
    (RunFolder(tmp_path).checkpoint(40) / "manifest.json").write_text("{}")
    recipe, prepared = load_recipe("tiny/mlm"), cast(Any, None)
    with pytest.raises(DataError, match=r"step_000040/manifest.json is damaged: .* is of step 20: --step 20"):
        exports._weights(recipe, prepared, tmp_path, "f", None, trust=False)


def test_two_hashes_are_shown_up_to_where_they_differ(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    right = hash_file(tmp_path / "file")
    with pytest.raises(DataError, match=rf"is {right[:41]}, the manifest says {right[:40]}-\. Again"):
        check_file(tmp_path / "file", f"{right[:40]}-{right[41:]}", "Again.")


def test_scores_that_the_manifest_beside_them_does_not_list_are_refused(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path / "run", 0)
    path = run / "evaluation" / "tatoeba" / "manifest.json"
    write_json(path, {"kind": "evaluation", "files": {"scores.json": "0" * 64}})
    with pytest.raises(DataError, match=r"scores\.json is damaged: .* the manifest says 000000000000\. Delete it"):
        read_run(run)
    assert json.loads(path.read_text())
