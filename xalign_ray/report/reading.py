"""How to read the numbers of a report or a model card: sentences, without the figures and what draws them."""

from __future__ import annotations

from collections.abc import Sequence

from xalign_ray.report.columns import Column
from xalign_ray.report.score_tables import PLUS_MINUS

_DEMO = (
    "These runs were trained on the embedded world: a small made-up set of languages to learn the tool by and to test "
    "it with. Its numbers are never a source of claims about a method."
)
_CHANCE = (
    "Scores are percent right. Chance is what guessing reaches on the same n questions. A score marked 'at chance' "
    "is not above chance by two standard errors of guessing, sqrt(p (1 - p) / n) with p = chance: it shows nothing."
)


def caveats(columns: Sequence[Column]) -> list[str]:
    """What must be known before the first number is read."""
    lines = [_DEMO] if any(run.on_demo for column in columns for run in column.runs) else []
    if unfinished := [column.label for column in columns if not all(run.finished for run in column.runs)]:
        lines.append(f"Not finished yet: {', '.join(unfinished)}.")
    return lines


def how_to_read(columns: Sequence[Column]) -> list[str]:
    """What a reader should know before believing a number, as far as it applies to these runs."""
    runs = [run for column in columns for run in column.runs]
    metrics = {score.metric for run in runs for score in run.scores}
    lines = [_CHANCE] if metrics else []
    lines += _on_seeds(columns)
    if metrics and len(columns) > 1:
        lines.append(
            "[a, b] holds 95 % of the differences when languages and seeds are drawn anew, with replacement, the same "
            "ones for both. It is about other languages and seeds like these, and too narrow where there are few: it "
            "holds the truth in about 75 of 100 cases with three languages, 85 with five, 93 with fifteen. Below three "
            "languages and three seeds none is given."
        )
    if "alignment_heldout" in metrics or "alignment_trained" in metrics:
        lines.append(
            "Word translation on held-out pairs is the test: no training loss saw these words paired. On trained pairs "
            "it only says that the alignment loss was learned."
        )
    if "mean_cosine_random" in metrics:
        lines.append(
            "Mean cosine of random words near 1 means that all embeddings have collapsed into one direction; word "
            "translation is then worth little."
        )
    if any("dictionary_alignment" in str(run.config.get("objectives")) for run in runs):
        lines.append(
            "Total losses of recipes with different objectives cannot be compared. The alignment loss is minus a mean "
            "cosine, so it may be negative; masked-LM and held-out losses compare where the vocabulary is the same."
        )
    return lines


def _on_seeds(columns: Sequence[Column]) -> list[str]:
    alone = [column.label for column in columns if len(column.runs) == 1]
    if len(alone) == len(columns) > 1:
        return [
            "One seed of each recipe was run: another seed may turn a small difference round. Believe a difference "
            "when several seeds agree."
        ]
    if len(alone) == len(columns):
        return []
    weaker = f" One seed only: {', '.join(alone)}." if alone else ""
    return [
        f"a {PLUS_MINUS} b is mean and standard deviation over seeds. A difference that is not there in every seed is "
        f"not yet a finding.{weaker}"
    ]
