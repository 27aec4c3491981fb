"""Scores XTREME's mock labels and predictions with our metrics and with the slow reference; exits 1 if they disagree.

`python tests/bench/xtreme_mock.py [FOLDER]`; the folder holds `labels` and `predictions` as google-research/xtreme
ships them under mock_test_data. Default: $XALIGN_XTREME_MOCK, else ../shared/data/xtreme_mock beside the repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rich.console import Console
from rich.table import Table

from tests.parity import slow_scores as slow
from tests.peers.seqeval_versions import f1_of_version_0, f1_of_version_1
from xalign_ray.tasks.qa_benchmarks import MLQA, XQUAD, QaBenchmark, read_squad
from xalign_ray.tasks.task import accuracy
from xalign_ray.tasks.token_classification import seqeval0_spans, seqeval1_spans, span_f1, strict_spans

TOLERANCE = 1e-9
DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "xtreme_mock"
Figures = dict[str, tuple[float, float]]  # metric: ours, and the reference's


def read_tags(path: Path) -> list[list[str]]:
    """A tag a line, a blank line between sentences."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [list(group) for filled, group in groupby(map(str.strip, lines), bool) if filled]


def score_labels(gold: Path, said: Path) -> Figures:
    """Accuracy of one label a line: ours is the share of equal labels that every accuracy of the package is."""
    right, predicted = (path.read_text(encoding="utf-8").splitlines() for path in (gold, said))
    return {"accuracy": (accuracy(right, predicted).value, slow.accuracy(right, predicted))}


def score_names(gold: Path, said: Path) -> Figures:
    """Names: seqeval's default mode, and its strict mode for IOB2."""
    right, predicted = read_tags(gold), read_tags(said)
    return {
        "ner_f1": (span_f1(right, predicted, seqeval1_spans), f1_of_version_1(right, predicted)),
        "ner_f1_strict": (span_f1(right, predicted, strict_spans), f1_of_version_1(right, predicted, strict=True)),
    }


def score_parts_of_speech(gold: Path, said: Path) -> Figures:
    """Accuracy, and F1 of both versions of seqeval."""
    right, predicted = read_tags(gold), read_tags(said)
    words = [[tag for tags in sentences for tag in tags] for sentences in (right, predicted)]
    return {
        "pos_accuracy": (accuracy(*words).value, slow.accuracy(*words)),
        "pos_f1_seqeval0": (span_f1(right, predicted, seqeval0_spans), f1_of_version_0(right, predicted)),
        "pos_f1_seqeval1": (span_f1(right, predicted, seqeval1_spans), f1_of_version_1(right, predicted)),
    }


def score_answers(task: QaBenchmark, gold: Path, said: Path) -> Figures:
    """Answers by the rules of their benchmark: MLQA's official script, or SQuAD's in every language."""
    language = gold.stem.split("-")[1]
    questions = read_squad(gold, language, language)
    predicted = json.loads(said.read_text(encoding="utf-8"))
    answers = [predicted.get(question.key, "") for question in questions]
    right = [[answer.text for answer in question.answers] for question in questions]
    ours = task.measure(questions, answers)
    mlqa = task.name == "mlqa"
    f1, exact = slow.answer_scores(
        answers, right, lambda text: slow.normalise(text, language) if mlqa else slow.squad_normalise(text)
    )
    return {
        f"{task.name}_f1": (ours[f"{task.name}_f1"].value, f1),
        f"{task.name}_em": (ours[f"{task.name}_em"].value, exact),
    }


TASKS: Mapping[str, Callable[[Path, Path], Figures]] = {
    "xnli": score_labels,
    "pawsx": score_labels,
    "tatoeba": score_labels,
    "panx": score_names,
    "udpos": score_parts_of_speech,
    "mlqa": partial(score_answers, MLQA),
    "xquad": partial(score_answers, XQUAD),
}


def main(folder: Path) -> int:
    """Prints a row a task and metric, means over the files in percent; the exit status."""
    table = Table("task", "metric", "files", "ours", "reference", "greatest difference of a file")
    worst = 0.0
    for task, score in TASKS.items():
        files = sorted((folder / "labels" / task).iterdir())
        figures = [score(path, folder / "predictions" / task / path.name) for path in files]
        for metric in figures[0]:
            pairs = [figure[metric] for figure in figures]
            difference = max(abs(ours - theirs) for ours, theirs in pairs)
            worst = max(worst, difference)
            means = (f"{100 * sum(side) / len(pairs):.4f}" for side in zip(*pairs, strict=True))
            table.add_row(task, metric, str(len(pairs)), *means, f"{difference:.1e}")
    Console().print(table)
    Console().print(f"Greatest difference: {worst:.1e}.")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    argument = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("XALIGN_XTREME_MOCK", DEFAULT)
    sys.exit(main(Path(argument)))
