"""Damages every file of a finished run, its data, its export and its scores, one at a time, and calls what reads it.

A verb then ends with the results of the undamaged files, or with a sentence that names the damaged file; never with a
traceback, never with other numbers. Verbs that make a file repair it when they are given again.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from tests.exits import exit_code
from tests.parity.cells_here import run_cells_here
from tests.parity.damage import DAMAGES, Walk, damaged, each_damaged, files_of
from xalign_ray import exports, pretraining
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.demo.writer import write_demo
from xalign_ray.results.report import report
from xalign_ray.sources import stage
from xalign_ray.studies.study import run_study
from xalign_ray.tasks.scores import read_scores
from xalign_ray.tokens import prepare as preparation
from xalign_ray.tokens.stats import measure
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work.artifacts import hash_file, hash_files

SETTINGS = (
    "data.corpora=[{format: jsonl, language: en, paths: [wiki/en.jsonl]},"
    " {format: jsonl, language: qgr, paths: [wiki/qgr.jsonl]}]",
    "data.dictionaries=[{languages: [en, qgr], paths: [dictionaries/en-qgr.txt]}]",
    "data.tokenizer.vocab_size=400",
    "train={max_steps: 2, global_batch_size: 4, per_device_batch_size: 4, eval_steps: 0}",
    "model={num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2, intermediate_size: 16}",
    "checkpoint={save_total_limit: 2, save_steps: 1}",
    "parallel.workers=1",
    "track.mlflow=off",
)


@dataclass(frozen=True)
class World:
    """A recipe whose run is finished, and where everything of it lies."""

    folder: Path
    recipe: Recipe
    run: Path
    data: Path
    given: tuple[str, ...]  # settings of the recipe


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The embedded world at its smallest, prepared, trained, exported and evaluated.

    Parts are prepared one after the other in this process; on a cluster they are tasks of Ray Data.
    """
    folder = tmp_path_factory.mktemp("walk")
    write_demo(folder / "demo", sentences=60, parallel_sentences=10, retrieval_pairs=8)
    places = (f"data.root={folder / 'demo'}", f"output={folder / 'runs'}")
    given = (*SETTINGS, *places)
    recipe = load_recipe("tiny/align-mlm", given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_run_tasks", lambda tasks, work, *_: [work(task) for task in tasks])
        prepared = preparation.prepare(recipe.config)
        run = pretraining.pretrain(recipe, local=True)
        evaluate(run, "alignment", None)
        yield World(folder, recipe, run, prepared.folder, given)


def report_of(world: World) -> dict[str, str]:
    """The numbers of the run's report, by file."""
    out = world.folder / "report"
    report([str(world.run)], out)
    return {name: (out / name).read_text() for name in ("scores.csv", "losses.csv", "comparison.csv")}


def exported(world: World) -> str:
    out = world.folder / "exported"
    exports.export(world.run, None, out)
    return hash_file(out / "model.safetensors")


def stats_of(world: World) -> Any:
    return measure(str(world.run), (), world.folder / "stats")[0]


def evaluated(world: World) -> Any:
    evaluate(world.run, "alignment", None, world.folder / "scores")
    return read_scores(world.folder / "scores" / "scores.json")


def pretrained(world: World) -> dict[str, str]:
    folder = pretraining.pretrain(world.recipe, local=True)
    card = {"README.md": ""}  # it tells of attempts
    return hash_files(folder / "export") | card | {"manifest": hash_file(folder / "manifest.json")}


READERS: Mapping[str, Callable[[World], Any]] = {
    "report": report_of,
    "export": exported,
    "data stats": stats_of,
    "evaluate": evaluated,
    "pretrain": pretrained,
}
READ_BY = {"checkpoints": ("export", "pretrain"), "export": ("evaluate", "pretrain"), "evaluation": ("report",)}


def test_every_file_of_a_finished_run(world: World, walk: Walk) -> None:
    right = {verb: do(world) for verb, do in READERS.items()}
    kept = world.folder / "kept"
    shutil.copytree(world.run, kept)
    files = [file.relative_to(world.run) for file in files_of(world.run)]
    for file, damage in each_damaged(world.run / file for file in files):
        room = file.relative_to(world.run).parts[0]
        if (room, damage) == ("evaluation", "deleted"):
            continue  # an evaluation that was never made
        for verb in READ_BY.get(room, READERS):
            walk.call(file, damage, verb, partial(READERS[verb], world), right[verb])
        shutil.rmtree(world.run)
        shutil.copytree(kept, world.run)
    assert len(files) >= 15
    assert walk.counted["right"] >= 60
    assert walk.counted["told"] >= 60


def test_an_interrupted_run_goes_on_whatever_is_damaged_or_says_what_is(world: World, walk: Walk) -> None:
    """As a kill after the first step left it: no manifest, no export, one checkpoint."""
    right = hash_file(world.run / "export" / "model.safetensors")
    begun, out = world.folder / "begun", world.folder / "again"
    shutil.copytree(world.run, begun, ignore=shutil.ignore_patterns("export", "evaluation", "step_000002"))
    (begun / "manifest.json").unlink()
    lines = (begun / "events.jsonl").read_text().splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if '"checkpoint"' in line)
    (begun / "events.jsonl").write_text("".join(lines[: last + 1]))

    def resumed() -> str:
        return hash_file(pretraining.pretrain(world.recipe, out, local=True) / "export" / "model.safetensors")

    for file in [file.relative_to(begun) for file in files_of(begun)]:
        for damage in ("halved", "emptied to {}"):
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(begun, out)
            left = DAMAGES[damage]((out / file).read_bytes())
            assert left is not None
            (out / file).write_bytes(left)
            walk.call(out / file, damage, "pretrain", resumed, right)
    assert walk.counted["right"] >= 8


def test_a_study_given_again_mends_what_is_its_own(world: World, walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its one cell is the world's run; where it has to be trained again, this process does it."""
    settings = [setting for setting in world.given if not setting.startswith("output=")]
    file, output = world.folder / "study.yaml", world.folder / "runs"
    encoder = {"recipe": world.recipe.name, "settings": settings, "label": "tiny"}
    tree = {"encoders": [encoder], "evaluations": [{"task": "alignment"}], "mlflow": "off"}
    file.write_text(yaml.safe_dump(tree))
    pretrain = pretraining.pretrain

    def pretrain_here(recipe: Recipe, title: str) -> Path:  # noqa: ARG001
        preparation.prepare(recipe.config)
        return pretrain(recipe, local=True)

    monkeypatch.setattr(pretraining, "pretrain", pretrain_here)
    run_cells_here(monkeypatch, [], [])
    folder = output / "studies" / "study"

    def studied() -> dict[str, str]:
        run_study(str(file), output)
        tables = {name: digest for name, digest in hash_files(folder).items() if name.endswith(".csv")}
        made = {name: digest for name, digest in tables.items() if Path(name).name != "costs.csv"}  # of times
        kept = {name: hash_file(world.run / name) for name in ("manifest.json", "config.yaml")}
        weights = {name: digest for name, digest in hash_files(world.run / "export").items() if name != "README.md"}
        return made | kept | weights

    right = studied()
    assert studied() == right
    mine = [world.run / name for name in ("events.jsonl", "manifest.json", "config.yaml")]
    mine += [world.run / "evaluation" / "study" / "scores.json", world.run / "export" / "model.safetensors"]
    mine += [world.data / "manifest.json", folder / "report" / "scores.csv"]
    for number, file_of_it in enumerate(mine):  # each damage on two of them or more; each file alone: the other tests
        for damage in damaged(file_of_it, ("deleted", [*DAMAGES][1 + number % 4])):
            walk.call(file_of_it, damage, "study", studied, right)
    assert walk.counted["right"] >= 2 * 6  # but a log cannot be made again
    assert not ray.is_initialized()


def test_a_full_disk_at_export_is_a_sentence_and_leaves_the_older_export(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hash_files(world.run / "export")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # bytes of a file; the kernel refuses more, as when full
    try:
        code = exit_code(lambda: exports.export(world.run))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    told = capsys.readouterr().err
    assert str(world.run) in told
    assert "File too large. Make room" in told
    assert hash_files(world.run / "export") == before
    assert [path.name for path in world.run.iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_a_user_put_beside_the_checkpoints_is_passed_over(world: World) -> None:
    copy = world.run / "checkpoints" / "step_000002.bak"
    shutil.copytree(world.run / "checkpoints" / "step_000002", copy)
    try:
        assert exported(world) == hash_file(world.run / "export" / "model.safetensors")
    finally:
        shutil.rmtree(copy)
