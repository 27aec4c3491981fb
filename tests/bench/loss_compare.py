"""Holds what recipes compute while the code around them changes: every tiny recipe's steps, every task's scores.

    python tests/bench/loss_compare.py write before.json     # before a change
    python tests/bench/loss_compare.py write after.json      # after it
    python tests/bench/loss_compare.py compare before.json after.json

Each recipe of `tiny/` takes a few steps in one process over the same small world; written are each step's batch hash
and each loss, to the last bit. The encoder of one of them is then scored by every task, and fine-tuned where a task
fine-tunes, on three seeds, if the small world has data for it: it has none for SIB-200, FLORES and NTREX.
`compare` names the first step of each recipe that differs and each score that does, and exits with 1 if there
is one. After the manner of torchtitan's `loss_compare.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xalign_ray import pretraining
from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.demo.writer import write_demo
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS
from xalign_ray.track.events import EVENT_LOG, read_events
from xalign_ray.verbs.scores import evaluate

SCORED, SEEDS = "tiny/mlm", (0, 1, 2)
SOONER = {  # what changes during a run, within its few steps
    "tiny/stages": ("masking.mlm_probability=[[7, 0.3], [8, 0.1]]", "objectives.1.weight=[[11, 0], [12, 10]]"),
    "tiny/xlm-align": ("objectives.1.weight=[[11, 0], [12, 1]]",),
}
FOLDERS = {"mldoc_h": "mldoc"}  # of tasks whose data is another's
WITHOUT_DATA = {"flores", "ntrex", "sts"}  # evaluations that the small world has no files for
SETTINGS = (
    "train.max_steps=24",
    "train.global_batch_size=16",
    "train.per_device_batch_size=8",
    "train.eval_steps=0",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "parallel.workers=1",
    'track.mlflow="off"',
)

Steps = list[dict[str, str]]


def steps_of(run: Path) -> Steps:
    """Of each step its batch hash and each of its losses, exactly."""
    steps = (event for event in read_events(run / EVENT_LOG) if event["event"] == "step")
    return [
        {"batch_hash": str(step["batch_hash"])}
        | {name: value.hex() for name, value in step["metrics"].items() if name.startswith("train/loss")}
        for step in steps
    ]


def scores_of(run: Path, world: Path, out: Path) -> Iterator[tuple[str, float]]:
    """(task, language, metric and seed as one name, value) of every task; those that fine-tune do so on three seeds."""
    for task in TASKS.keys() - TUNED_TASKS.keys() - WITHOUT_DATA:
        data = world / "tatoeba" if TASKS[task].needs_data else None
        for score in evaluate(run, task, data, out / task).itertuples():
            yield f"{task} {score.language} {score.metric}", score.value
    for name, task in TUNED_TASKS.items():
        data = world / FOLDERS.get(name, name)
        for seed in SEEDS if data.is_dir() else ():
            settings = FineTuning(
                num_train_epochs=1, train_batch_size=16, learning_rate=1e-3, max_train_samples=200, seed=seed
            )
            for score in tune_task(task, str(run / "export"), [data], out / f"{name}-{seed}", settings=settings):
                yield f"{name} {score.language} {score.metric} seed {seed}", score.value


def write(file: Path) -> None:
    """Trains, scores, and writes all numbers."""
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "demo"
        write_demo(world)
        settings = [*SETTINGS, f"data.root={world}", f"output={folder}/runs"]
        steps: dict[str, Steps] = {}
        runs: dict[str, Path] = {}
        for name in (name for name in list_recipes() if name.startswith("tiny/")):
            recipe = load_recipe(name, [*settings, *SOONER.get(name, ())])
            pretraining.prepare(recipe)
            runs[name] = pretraining.pretrain(recipe, local=True)
            steps[name] = steps_of(runs[name])
        scores = dict(sorted(scores_of(runs[SCORED], world, Path(folder) / "scores")))
    file.write_text(json.dumps({"steps": steps, "scores": scores}, indent=1) + "\n", encoding="utf-8")


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """A line for each recipe whose steps differ, at the first that does, and for each score that does."""
    for name in sorted(before["steps"].keys() | after["steps"].keys()):
        old, new = before["steps"].get(name), after["steps"].get(name)
        if old is None or new is None:
            yield f"{name}: only {'after' if old is None else 'before'}"
        elif len(old) != len(new):
            yield f"{name}: {len(old)} steps before, {len(new)} after"
        elif unlike := next(((n, a, b) for n, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b), None):
            step, was, now = unlike
            keys = [key for key in sorted(was.keys() | now.keys()) if was.get(key) != now.get(key)]
            yield f"{name}: step {step}: " + ", ".join(f"{key} {was.get(key)} -> {now.get(key)}" for key in keys)
    for name in sorted(before["scores"].keys() | after["scores"].keys()):
        if (old := before["scores"].get(name)) != (new := after["scores"].get(name)):
            yield f"{name}: {old} -> {new}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write").add_argument("file", type=Path)
    comparison = verbs.add_parser("compare")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "write":
        write(given.file)
        return 0
    before, after = (json.loads(file.read_text(encoding="utf-8")) for file in (given.before, given.after))
    found = list(differences(before, after))
    for line in found:
        sys.stdout.write(f"{line}\n")
    taken = sum(len(steps) for steps in before["steps"].values())
    if not found:
        sys.stdout.write(f"{taken} steps of {len(before['steps'])} recipes and {len(before['scores'])} scores: equal\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
