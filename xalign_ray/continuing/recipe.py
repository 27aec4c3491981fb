"""The recipe of `xalign continue` as a file: the method's recipe, with the user's encoder, data and settings."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from xalign_ray.config.choices import (
    ContrastedPairs,
    Distillation,
    MaskedLm,
    MaskedText,
    ObjectiveChoice,
    SentenceContrast,
    StreamChoice,
    prompt_reserve,
)
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.schema import DataConfig, RunConfig
from xalign_ray.continuing.files import ROOT, Data
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.new_languages import (
    TIMES_ENGLISH,
    needs_pieces,
    open_pieces,
    pieces_a_word,
    teacher_language,
)
from xalign_ray.continuing.temperature import own_temperature
from xalign_ray.errors import ConfigError
from xalign_ray.models.families import family_of
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.train.cluster_address import named_cluster
from xalign_ray.vocabulary.exchange import show_fertility
from xalign_ray.vocabulary.tokenizer import encode_text
from xalign_ray.work.run_folder import RUNS

LARGE = 1024  # hidden size from which an encoder is continued at half the learning rate
OF_ADAPTERS = 10  # times the learning rate of all weights, for LoRA's (Schulman et al. 2025, LoRA Without Regret)
EXPERIMENT = "continue"  # of MLflow, whose page begins with base against yours
ROWS_OF_TEXT = 32  # of a step, where text alone is read
SHARE_OF_NEW_ROWS = 0.1  # share of the steps, at the beginning, in which rows of new pieces move alone
RATE_OF_NEW_ROWS = 50.0  # factor of the learning rate in these steps
DEV_FRACTION = 0.05  # of the pairs, beside the test
MAX_TESTS, MIN_TESTS = 1000, 200  # pairs kept out: of all languages together, and of two languages in any case


@dataclass(frozen=True)
class Continuation:
    """A resolved `xalign continue`.

    Attributes:
        recipe: what `pretraining.pretrain` runs.
        tree: the same as a recipe's file, without defaults.
        data: the user's files.
        notes: findings and decisions, a sentence each.
    """

    lines: FiveLines
    recipe: Recipe
    tree: Mapping[str, Any]
    data: Data
    notes: Sequence[str]

    @property
    def as_yaml(self) -> str:
        """The recipe as the text of a file that `xalign pretrain` runs to the same fingerprint."""
        return yaml.safe_dump(dict(self.tree), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def make_recipe(
    lines: FiveLines, encoder: Opened, method: str, replay: float, data: Data, opens: bool
) -> dict[str, Any]:
    """The file of a recipe that extends the method's, without settings and length; see `story.resolve`."""
    base = load_recipe(f"continue/{method}").config
    output = os.path.dirname(lines.output.rstrip("/")) or "." if lines.output else str(RUNS)
    streams, objectives = _rows_and_losses(base, lines, encoder, method, replay, data, opens)
    optimizer: dict[str, Any] = {}
    factor = (0.5 if encoder.config["hidden_size"] >= LARGE else 1) * (OF_ADAPTERS if lines.lora else 1)
    if factor != 1:
        optimizer["learning_rate"] = float(f"{factor * base.train.optimizer.learning_rate:.6g}")
    if lines.pieces:
        optimizer["rates"] = {"new_rows": RATE_OF_NEW_ROWS}
    return {
        "extends": f"continue/{method}",
        "output": output,
        "data": _data(base.data, lines, encoder, method, data),
        **({"streams": [*map(_plain, streams)]} if streams != [*base.streams] else {}),
        **({"objectives": [*map(_plain, objectives)]} if objectives != [*base.objectives] else {}),
        "model": {"init_from": encoder.name, **({"lora": {"rank": lines.lora}} if lines.lora else {})},
        "train": {
            **({"pairs_per_step": 0, "global_batch_size": ROWS_OF_TEXT} if method == "align" and data.text else {}),
            **({"optimizer": optimizer} if optimizer else {}),
            **({"trainable": [[0, "new_rows"], [SHARE_OF_NEW_ROWS, "all"]]} if lines.pieces else {}),
        },
        "parallel": {
            "workers": lines.workers,
            # All of this machine, shared; of a cluster that is joined one, which fits everywhere.
            "cpus_per_worker": 1 if named_cluster() else max(1, (os.cpu_count() or 1) // lines.workers),
            "gpus_per_worker": int(_has_gpu()),
        },
        "track": {"experiment": EXPERIMENT},
    }


def _data(base: DataConfig, lines: FiveLines, encoder: Opened, method: str, data: Data) -> dict[str, Any]:
    align = {"align": "hmm"} if method == "weam" else {}
    block: dict[str, Any] = {
        "root": str(ROOT),
        "corpora": [*map(_plain, data.text)],
        "parallel": [({} if corpus.brings_alignment else align) | _plain(corpus) for corpus in data.pairs],
    }
    for key, corpora in (("tests", data.tests), ("dev", data.dev), ("dictionaries", data.dictionaries)):
        block |= {key: [*map(_plain, corpora)]} if corpora else {}
    if data.tests or not data.pairs:
        block["test_fraction"] = 0.0
    if data.pairs and lines.keep_best and not data.dev:
        block["dev_fraction"] = DEV_FRACTION
    if (several := len({corpus.languages for corpus in data.pairs})) > 1:
        block["max_test_pairs"] = max(MIN_TESTS, MAX_TESTS // several)
    room = family_of(encoder.name, encoder.config).max_length(encoder.config)
    if room < base.max_seq_length:
        block["max_seq_length"] = room
    if prompts := {text for text in _prompts(encoder, data).values() if isinstance(text, str) and text}:
        tokenizer = open_pieces(lines.model)
        pieces = [len(encode_text(tokenizer, [text.rstrip()])[0][0]) if tokenizer else len(text) for text in prompts]
        reserve = math.ceil(100 * prompt_reserve(max(pieces))) / 100
        block |= {"reserve_fraction": reserve} if reserve > base.reserve_fraction else {}
    if lines.pieces:
        pieces = pieces_a_word(lines.model, data.pairs, data.text)
        if not (costly := needs_pieces(open_pieces(lines.model), pieces)):
            raise ConfigError(
                f"--pieces {lines.pieces} makes pieces of languages that take over {TIMES_ENGLISH} times as many a "
                f"word as English in the same files, or that a unigram vocabulary cannot write, and none does "
                f"({show_fertility(pieces)}). Leave it out."
            )
        block["tokenizer"] = {"kind": "start", "new_pieces": lines.pieces, "new_pieces_of": costly}
    if teacher := _teacher(lines, method):
        if not (language := teacher_language(data.pairs)):
            named = ", ".join(dict.fromkeys("-".join(corpus.languages) for corpus in data.pairs))
            raise ConfigError(f"--method {method} needs one language in all pairs; {named} share none.")
        block["teacher"] = {"path": teacher, "language": language}
    return block


def _rows_and_losses(
    base: RunConfig, lines: FiveLines, encoder: Opened, method: str, replay: float, data: Data, opens: bool
) -> tuple[list[Any], list[Any]]:
    """The method's streams and objectives, with replay, the encoder's prompt, pooling and temperature."""
    streams: list[Any] = [MaskedText()] if method == "align" and data.text else [*base.streams]
    objectives: list[Any] = [*base.objectives]
    if replay:
        streams, objectives = with_replay(replay, streams, objectives)
    streams = _updated(streams, ContrastedPairs, **_prompts(encoder, data))
    pooled = {"pooling": encoder.sentences.rule.pooling}
    objectives = [loss.model_copy(update=pooled) if hasattr(loss, "pooling") else loss for loss in objectives]
    if opens and any(isinstance(loss, SentenceContrast) for loss in objectives):
        objectives = _updated(objectives, SentenceContrast, temperature=own_temperature(encoder, data.pairs))
    if (teacher := _teacher(lines, method)) and "Normalize" in open_encoder(teacher).sentences.kinds:
        objectives = _updated(objectives, Distillation, normalize=True)
    return streams, objectives


def _updated(blocks: Sequence[Any], kind: type, **values: Any) -> list[Any]:
    return [block.model_copy(update=values) if isinstance(block, kind) else block for block in blocks]


def _prompts(encoder: Opened, data: Data) -> dict[str, Any]:
    """What stands before queries and keys: the encoder's prompts of a search, where pairs are queries and passages."""
    if any(corpus.negatives or len({*corpus.languages}) == 1 for corpus in data.pairs):
        query, passage = encoder.sentences.search_prompts
        return {"prompt": query, "key_prompt": passage, "random_order": False}
    return {"prompt": encoder.sentences.rule.prompt}


def _teacher(lines: FiveLines, method: str) -> str | None:
    """The encoder whose vectors are learned: with `add` it is its own teacher where none is named."""
    return lines.teacher or (lines.model if method == "add" else None)


def with_replay(
    share: float, streams: Sequence[StreamChoice], objectives: Sequence[ObjectiveChoice]
) -> tuple[list[Any], list[Any]]:
    """Streams and objectives of a recipe in which a share of the rows is masked text.

    The masked-LM loss keeps its whole weight at any share: it is a mean over labels. In the embedded world, 80 steps of
    contrast on one pair of languages raised the masked-LM loss of two others from 4.5 to 7.8 nats; to 5.0 with a share
    of 0.1, and to 5.2 with a tenth of the weight too. The trained languages gained as much in all three.

    Args:
        share: of the rows, in (0, 1).
        streams, objectives: of the recipe without replay.
    """
    others = sum(stream.weight for stream in streams)
    text = MaskedText(weight=round(share / (1 - share) * others, 6))
    predicts = any(isinstance(loss, MaskedLm) for loss in objectives)
    return [*streams, text], [*([] if predicts else [MaskedLm()]), *objectives]


def note_pieces(lines: FiveLines, data: DataConfig) -> list[str]:
    """A sentence with the pieces a word of each language, counted on its first sentences; none of a slow tokenizer.

    Raises:
        ConfigError: the vocabulary cannot write a language, and gets no new pieces.
    """
    model = getattr(data.tokenizer, "path", None) or lines.model
    pieces = pieces_a_word(model, data.parallel, data.corpora)
    added = getattr(data.tokenizer, "new_pieces", 0) and (data.tokenizer.new_pieces_of or pieces)  # type: ignore[union-attr]
    for code, (_, unknown) in pieces.items():
        if unknown > lines.allow_unknown and code not in (added or ()):
            raise ConfigError(
                f"{100 * unknown:.0f} % of the pieces of {code} are unknown to the vocabulary of {model}, which cannot "
                f"write it: nothing would be learned of them. Give it pieces (--pieces 2000, of a unigram vocabulary "
                f"such as XLM-R's or E5's), take another encoder, or train all the same: "
                f"--allow-unknown {math.ceil(20 * unknown) / 20:g}."
            )
    return [f"Pieces a word: {show_fertility(pieces)}."] if pieces else []


def put_settings(tree: dict[str, Any], settings: Sequence[str], recipe: Recipe) -> None:
    """Writes the values of `--set` into the recipe's file; a list as a whole."""
    resolved = recipe.config.model_dump(mode="json")
    for setting in settings:
        keys = setting.partition("=")[0].split(".")
        keys = keys[: next((number for number, key in enumerate(keys) if key.isdigit()), len(keys))]
        block, value = tree, resolved
        for key in keys[:-1]:
            block, value = block.setdefault(key, {}), value[key]
        block[keys[-1]] = value[keys[-1]]


def _plain(block: Any) -> dict[str, Any]:
    """A block of a recipe without its defaults."""
    kind = {"kind": block.kind} if hasattr(block, "kind") else {}
    return kind | block.model_dump(mode="json", exclude_defaults=True)


def _has_gpu() -> bool:
    """Whether this machine trains on a GPU; for the workers of a joined cluster a setting decides."""
    if named_cluster():
        return False
    import torch

    return torch.cuda.is_available()
