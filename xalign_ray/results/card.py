"""Model card of an exported encoder: origin, training, scores, and how to load it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from xalign_ray.config.choices import OBJECTIVES, ContrastedPairs
from xalign_ray.errors import DataError
from xalign_ray.models.hub import revision_of
from xalign_ray.results.compare import Comparison, compare_runs, is_share, score_frame
from xalign_ray.results.continued import kept_sentence, of_comparison, read_continued, sentence
from xalign_ray.results.run import Run, as_published, label_runs, read_run
from xalign_ray.results.sentences import ENVIRONMENT, caveats, how_to_read
from xalign_ray.results.tables import as_markdown, data_tables, escape_markdown, run_table, score_table, values_table
from xalign_ray.tasks.registry import METRICS
from xalign_ray.work.artifacts import read_json, write_atomic
from xalign_ray.work.run_folder import CARD, RunFolder
from xalign_ray.work.storage import RUN_OF


def write_model_card(run: Path) -> None:
    """Writes `export/README.md` of a run: a Hugging Face model card, with the scores that there are so far.

    Raises:
        DataError: the run has not been exported.
    """
    export = RunFolder(run).export
    path = export / "config.json"
    if not path.is_file():
        raise DataError(f"{run} has no exported encoder ({path} is missing); run `xalign export {quote(str(run))}`.")
    model = read_json(path, f"`xalign export {quote(str(run))}` writes it again.", "model_type", "hidden_size")
    write_atomic(export / CARD, _write(label_runs([read_run(run)])[0], model))


def _write(run: Run, model: Mapping[str, Any]) -> str:
    base = run.config.get("model", {}).get("init_from") or ""
    (run,) = as_published([run])
    scores = compare_runs([run], score_frame([run]), ("task", "language"))
    tables = [
        *(score_table(scores, by) for by in scores.by),
        values_table([run]),
        *data_tables([run]),
        run_table([run]),
    ]
    losses = [OBJECTIVES.get(loss.get("kind")) for loss in run.config.get("objectives") or []]
    reads_head = any(loss is not None and loss.predicts_pieces for loss in losses)
    contrasts = any(loss is not None and loss.stream == ContrastedPairs().kind for loss in losses)
    continued = read_continued(run.folder)
    # A head that no loss reads is as it was drawn, or as its encoder's file had it.
    has_head = reads_head and any("ForMaskedLM" in name for name in model.get("architectures") or [])
    recipe = yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True)
    method, languages = model.get("xalign_objective"), _languages(run)
    head = ModelCardData(
        language=languages,
        library_name="transformers",
        pipeline_tag="sentence-similarity" if contrasts else "fill-mask" if has_head else "feature-extraction",
        license=_licence(base),
        tags=["xalign-ray", "multilingual", "cross-lingual", model["model_type"], *([method] if method else [])],
        base_model=None if Path(base).is_absolute() or base.startswith(RUN_OF) else base or None,
        model_name=run.name,
        eval_results=_eval_results(scores) or None,
    )
    shown = [*(of_comparison(continued) if continued else []), *(table for table in tables if table.rows)]
    return ENVIRONMENT.get_template("card.md").render(
        plain=escape_markdown,
        code=_code,
        head=head.to_yaml(),
        start=_start(base),
        run=run,
        model=model,
        languages=languages,
        steps=f"{model.get('xalign_step', run.log.last_step):,}",
        fingerprint=str(run.config.get("fingerprint", ""))[:12],
        has_head=has_head,
        pooling=next((loss["pooling"] for loss in run.config.get("objectives") or [] if "pooling" in loss), ""),
        finding=f"{sentence(continued)} {kept_sentence(continued)}".strip() if continued else "",
        told=model.get("xalign_languages") or [],
        reading=[*caveats([run]), *how_to_read([run])],
        tables="\n".join(map(as_markdown, shown)),
        recipe=recipe,
        fence=_fence(recipe, 3),
    )


def _eval_results(scores: Comparison) -> list[EvalResult]:
    """The means of shares, which the hub shows beside the model."""
    return [
        EvalResult(
            task_type=METRICS[record["metric"]].title,
            task_name=METRICS[record["metric"]].title,
            dataset_type=record["split"],
            dataset_name=f"{record['split']}: {record['languages']}",
            metric_type=record["metric"],
            metric_value=round(record["mean"], 4),
            metric_name=record["metric"],
        )
        for record in scores.records("task")
        if is_share(record["metric"])
    ]


def _fence(text: str, least: int) -> str:
    """Backticks around a text, more than stand together in it."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def _code(text: str) -> str:
    fence = _fence(text, 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _start(init_from: str) -> str:
    """The name of the encoder that a run continued: a hub id, a folder's, or that of the run whose export it is."""
    path = Path(init_from)
    if not path.is_absolute():
        return revision_of(init_from.removeprefix(RUN_OF))[0]
    return path.parent.name if path.name == "export" else path.name


def _licence(init_from: str) -> str | None:
    """The front matter of the base's own card; None where there is none."""
    card = Path(init_from) / CARD
    with suppress(OSError, ValueError, yaml.YAMLError):
        text = card.read_text(encoding="utf-8", errors="replace") if init_from else ""
        return ModelCard(text).data.get("license") if text.startswith("---\n") else None
    return None


def _languages(run: Run) -> list[str]:
    """The run's languages in the order of their ids."""
    if run.data is not None:
        return list(run.data["languages"])
    named = [corpus["language"] for corpus in run.sources("corpora")]
    named += [
        code for key in ("parallel", "dictionaries") for source in run.sources(key) for code in source["languages"]
    ]
    return list(dict.fromkeys(named))
