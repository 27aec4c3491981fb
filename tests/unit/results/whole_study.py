"""A small study whose fine-tuned cells have predictions, its bundle, and forgeries of it with a hash of their own."""

from __future__ import annotations

import json
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.unit.results.run_folders import open_folders, score, write_run, write_study
from xalign_ray.config.load import load_recipe
from xalign_ray.results.bundle import report_numbers, verify_bundle, write_bundle
from xalign_ray.results.run import as_published
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score, average_languages, write_scores
from xalign_ray.work.artifacts import hash_value, seal_archive, write_json

LANGUAGES, SEEDS = ("de", "es", "hi"), (0, 1, 2)
TAGS = ("NOUN", "VERB", "ADJ")
Members = dict[str, bytes]


def write_predictions(folder: Path, run: str, right: float) -> list[Score]:
    """A fine-tuned cell: drawn predictions, of which about the share `right` is right, and their scores."""
    task, rng = TUNED_TASKS["pos"], random.Random(f"{run} {right}")
    scores = []
    for language in LANGUAGES:
        test = random.Random(language)  # one for all encoders
        gold = [[test.choice(TAGS) for _ in range(5)] for _ in range(40)]
        said = [[tag if rng.random() < right else rng.choice(TAGS) for tag in tags] for tags in gold]
        rows = [{"key": str(n), "prediction": p, "gold": g} for n, (p, g) in enumerate(zip(said, gold, strict=True))]
        (folder / "predictions").mkdir(parents=True, exist_ok=True)
        (folder / f"predictions/{language}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        examples = [task.from_gold(row["key"], row["gold"], language) for row in rows]
        where = {"task": "pos", "layer": None, "pooling": None, "language": language, "run": run, "seed": 0}
        where["test_set"] = f"hash of {language}"
        scores += [score(name, **asdict(one), **where) for name, one in task.measure(examples, said).items()]
    scores += average_languages(scores)
    write_scores(folder / "scores.json", scores)
    return scores


def write_whole_study(
    tmp_path: Path, seeds: Sequence[int] = SEEDS, base: float | None = None, settings: Sequence[str] = ()
) -> Path:
    """Two encoders with seeds: retrieval, and POS with predictions and a setting that was not chosen.

    `base` is the retrieval of an encoder that was given, which lies somewhere else on every machine.
    """
    cells: list[dict[str, Any]] = []
    folder = tmp_path / "runs/studies/mine"
    if base is not None:
        own = {"run": None, "encoder": str(tmp_path / "e5-small"), "seed": None, "step": None}
        found = [score(value=base, language=language, **own) for language in LANGUAGES]
        what = {"label": "base", "seed": None, "task": "tatoeba", "kind": "evaluation"}
        cells.append({**what, "name": f"tatoeba-base-{tmp_path.name}", "scores": found})
    for label, right in (("mlm", 0.3), ("dict-mlm-50", 0.6)):
        for seed in seeds:
            name = f"tiny-{label}-{seed}"
            run = write_run(tmp_path / "runs" / name, seed=seed, settings=settings)
            cells.append({"kind": "pretraining", "label": label, "name": name, "folder": str(run), "seed": seed})
            found = [
                score(value=right / 2 + seed / 50 + n / 20, language=language, run=name, seed=seed)
                for n, language in enumerate(LANGUAGES)
            ]
            what = {"label": label, "seed": seed, "task": "tatoeba", "kind": "evaluation"}
            cells.append({**what, "name": f"tatoeba-{label}-{seed}", "scores": found})
            for number, better in enumerate((right, right + 0.1)):
                cell = f"pos-{label}-{seed}-{number}"
                own = write_predictions(folder / "cells" / cell, name, better)
                tuned = {"label": label, "task": "pos", "kind": "finetuning", "name": cell, "train_language": "en"}
                cells.append({**tuned, "scores": own, "training": "english", "seed": 0, "chosen": number == 1})
    write_study(folder, cells)
    told = json.loads((folder / "study.json").read_text())
    told |= {"seeds": {"mlm": seeds, "dict-mlm-50": seeds}}
    encoder = {"recipe": "tiny/mlm", "model": "", "settings": ["masking.mlm_probability=0.15"], "languages": []}
    given = [encoder | {"label": "base", "recipe": "", "model": str(tmp_path / "e5-small"), "settings": []}]
    given *= base is not None
    told |= {
        "study": {
            "encoders": [*given, *({"label": label} | encoder for label in ("mlm", "dict-mlm-50"))],
            "evaluations": [{"task": "tatoeba", "languages": []}],
            "finetunings": [
                {"task": "pos", "train_language": "en", "seeds": [0], "languages": [*LANGUAGES]}
                | {"settings": {"learning_rate": [0.1, 0.2], "weight_decay": None}}
            ],
            "search": {},
            "seeds": seeds,
        }
    }
    write_json(folder / "study.json", told)
    rate = load_recipe("tiny/mlm").config.train.optimizer.learning_rate
    tried = [
        {"encoder": label, "learning_rate": one, "score": better}
        for label in ("mlm", "dict-mlm-50")
        for one, better in ((rate / 5, 0.1), (rate, 0.2))
    ]
    chosen_rates = {"mlm": rate, "dict-mlm-50": rate}
    how = {"metric": "tatoeba_accuracy", "languages": ["tr"]}
    write_json(folder / "rates.json", how | {"tried": tried, "chosen": chosen_rates})
    return folder


def write_bundle_of(*sources: Path) -> Path:
    """The bundle of a report on these sources, beside the first, without its page."""
    bundle = sources[0].with_suffix(".zip")
    runs = as_published(open_folders(sources))
    write_bundle(bundle, runs, report_numbers(runs), (), None)
    return bundle


def forge(bundle: Path, change: Callable[[Members], None]) -> list[str]:
    """The problems of a bundle of which files were changed and the hash written anew."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    forged = bundle.with_name("forged.zip")
    forged.write_bytes(seal_archive(members))
    return verify_bundle(forged).problems


def change_json(members: Members, name: str, change: Callable[[Any], Any]) -> None:
    value = json.loads(members[name])
    change(value)
    members[name] = json.dumps(value).encode()


def forge_score(members: Members) -> None:
    """Of the first seed's fine-tuned cell, with the hash of its file: only the predictions know better."""
    name = next(name for name in sorted(members) if re.search(r"pos-mlm-\d-1/scores\.json", name))

    def change(file: Any) -> None:
        (one, *_) = (one for one in file["scores"] if one["metric"] == "pos_accuracy" and one["language"] == "de")
        one["value"] += 0.1
        file["sha256"] = hash_value(file["scores"])

    change_json(members, name, change)


def forge_prediction(members: Members) -> None:
    (name,) = (name for name in members if "pos-mlm-0-1/predictions/de.jsonl" in name)
    rows = [json.loads(line) for line in members[name].decode().splitlines()]
    rows[0]["prediction"] = ["X"] * 5
    members[name] = "".join(json.dumps(row) + "\n" for row in rows).encode()
