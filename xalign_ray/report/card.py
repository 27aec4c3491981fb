"""Writes the model card of an exported encoder: what it is, how it was trained, how it scored, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xalign_ray.artifacts import read_json, write_atomic
from xalign_ray.errors import DataError
from xalign_ray.report.columns import Column
from xalign_ray.report.compare import compare
from xalign_ray.report.reading import how_to_read
from xalign_ray.report.run import Run, read_run
from xalign_ray.report.run_tables import data_tables, run_table
from xalign_ray.report.score_tables import score_table
from xalign_ray.report.table import as_markdown

_EXPORT = "export"
_GROUPINGS = ("task", "language")


def write_model_card(run: Path) -> None:
    """Writes `export/README.md` of a run: a Hugging Face model card, with the scores that there are so far.

    Raises:
        DataError: the run has not been exported.
    """
    path = run / _EXPORT / "config.json"
    if not path.is_file():
        raise DataError(f"{run} has no exported encoder ({path} is missing); run `xalign export {run}` first.")
    model = read_json(path, f"`xalign export {run}` writes it again.", "model_type", "hidden_size")
    write_atomic(run / _EXPORT / "README.md", _write(read_run(run), model))


def _write(run: Run, model: Mapping[str, Any]) -> str:
    column = Column(run.recipe, (run,))
    languages = _languages(run)
    scores = compare({column.label: run.scores}, None, _GROUPINGS)
    tables = [*(score_table(scores, by) for by in _GROUPINGS), *data_tables([column]), run_table([column])]
    parts = [
        f"---\n{_front_matter(run, model, languages)}---",
        f"# {run.recipe}",
        _introduction(run, model, languages),
        "## How to load it",
        _loading(model),
        "## Scores and data",
        "\n".join(f"- {line}" for line in how_to_read([column])),
        *(as_markdown(table).strip() for table in tables if table.rows),
        "## Recipe",
        f"```yaml\n{yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True)}```",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(run: Run, model: Mapping[str, Any], languages: list[str]) -> str:
    size = f"{model['num_hidden_layers']} layers of width {model['hidden_size']}"
    steps = model.get("xalign_step", run.last_step)
    method = f"method: {model.get('xalign_objective', 'unknown')}, seed {run.seed}"
    fingerprint = str(run.config.get("fingerprint", ""))[:12]
    return (
        f"A {model['model_type'].upper()} encoder of {size} for {', '.join(languages)}, pretrained for {steps:,} steps "
        f"by xalign-ray's recipe `{run.recipe}` ({method}, run fingerprint `{fingerprint}`)."
    )


def _front_matter(run: Run, model: Mapping[str, Any], languages: list[str]) -> str:
    objective = model.get("xalign_objective")
    base = run.config.get("model", {}).get("init_from")
    fields: dict[str, Any] = {
        "language": languages,
        "library_name": "transformers",
        "pipeline_tag": "fill-mask" if _has_head(model) else "feature-extraction",
        "tags": [
            "xalign-ray",
            "multilingual",
            "cross-lingual",
            model["model_type"],
            *([objective] if objective else []),
        ],
    }
    if base and not Path(base).exists():
        fields["base_model"] = base
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)


def _languages(run: Run) -> list[str]:
    """The run's languages in the order of their ids."""
    if run.data is not None:
        return list(run.data["languages"])
    data = run.config.get("data", {})
    pairs = [*data.get("parallel", []), *data.get("dictionaries", [])]
    named = [corpus["language"] for corpus in data.get("corpora", [])] + [
        code for p in pairs for code in p["languages"]
    ]
    return list(dict.fromkeys(named))


def _has_head(model: Mapping[str, Any]) -> bool:
    return any(name.endswith("ForMaskedLM") for name in model.get("architectures") or [])


STOCK = ("bert", "xlm-roberta", "modernbert")  # families that transformers opens by itself


def _loading(model: Mapping[str, Any]) -> str:
    auto = "AutoModelForMaskedLM" if _has_head(model) else "AutoModel"
    ours = model.get("model_type") not in STOCK
    lines = [
        *(["import torch"] if model.get("xalign_languages") else []),
        *(["import xalign_ray.models.language_modernbert  # the class of this folder"] if ours else []),
        f"from transformers import {auto}, AutoTokenizer",
        "",
        'folder = "."  # where this file lies',
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f"model = {auto}.from_pretrained(folder)",
        'inputs = tokenizer("a sentence", return_tensors="pt")',
    ]
    languages = model.get("xalign_languages") or []
    said = ""
    if languages:
        lines += [
            f"languages = {json.dumps(languages)}",
            f'kind = {model["xalign_segments"]} * languages.index("{languages[0]}")',
            'inputs["token_type_ids"] = torch.full_like(inputs["input_ids"], kind)',
        ]
        said = "\n\nThe language of a sentence is its `token_type_ids`: segment + number of segments x language id."
    lines.append("outputs = model(**inputs)")
    return "\n".join(("```python", *lines, "```")) + said
