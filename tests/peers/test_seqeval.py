"""F1 over tags against seqeval itself: 0.0.12 (XTREME), 1.2.2 (ALIGN-MLM's authors), and its strict mode."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from tests.peers.seqeval_versions import f1_of_version_0, f1_of_version_1
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import Sentence, seqeval0_spans, seqeval1_spans, span_f1, strict_spans

NER, POS = (TUNED_TASKS[name] for name in ("ner", "pos"))

NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
ALL_LETTERS = ("O", ".", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC")))
DASHED = ("O", "B-PER-x", "I-PER-x", "B-LOC-x", "I-LOC-x")  # seqeval 0.0.12 takes what follows the last dash
# The first two: google-research/xtreme 838c13b69daa, mock_test_data, Copyright 2020 Google and DeepMind, Apache-2.0
MOCK = {
    "panx, Burmese": (
        "B-LOC B-LOC O O O O O O O O O/O O O O O B-PER B-PER O",
        "B-LOC B-LOC O O O O B-ORG O O O O/O O O O B-ORG B-ORG B-ORG O",
    ),
    "udpos, Bulgarian": (
        "PRON AUX PUNCT SCONJ VERB AUX VERB PUNCT ADP ADJ NOUN ADP NOUN PRON PUNCT/AUX INTJ VERB AUX AUX VERB PUNCT",
        "PRON VERB PUNCT SCONJ VERB PART VERB PUNCT ADP ADV NOUN ADP NOUN PRON PUNCT/ADV ADV AUX PART PRON VERB PUNCT",
    ),
    "udpos, where the versions differ": ("SCONJ NOUN CCONJ X/X NOUN VERB", "CCONJ NOUN SCONJ X/X NOUN X"),
}


def draw(tags: Sequence[str], rng: random.Random) -> tuple[list[list[str]], list[list[str]]]:
    """A few sentences of random tags, and predictions of which about three in four are right."""
    lengths = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 6))]
    gold = [rng.choices(tags, k=length) for length in lengths]
    return gold, [[tag if rng.random() < 0.75 else rng.choice(tags) for tag in sentence] for sentence in gold]


@pytest.mark.parametrize(
    ("tags", "ours", "theirs"),
    [
        pytest.param(POS.classes, seqeval0_spans, f1_of_version_0, id="pos_f1_seqeval0"),
        pytest.param(POS.classes, seqeval1_spans, f1_of_version_1, id="pos_f1_seqeval1"),
        pytest.param(NAMES, seqeval1_spans, f1_of_version_0, id="ner_f1, seqeval 0.0.12"),
        pytest.param(NAMES, seqeval1_spans, f1_of_version_1, id="ner_f1, seqeval 1.2.2"),
        pytest.param(ALL_LETTERS, seqeval0_spans, f1_of_version_0, id="all letters, seqeval 0.0.12"),
        pytest.param(ALL_LETTERS, seqeval1_spans, f1_of_version_1, id="all letters, seqeval 1.2.2"),
        pytest.param(DASHED, seqeval1_spans, f1_of_version_1, id="ner_f1, kinds with a dash"),
        pytest.param(
            NAMES, strict_spans, lambda *sides: f1_of_version_1(*sides, strict=True), id="ner_f1_strict, strict mode"
        ),
    ],
)
def test_f1_on_random_tags_equals_seqeval(tags: Sequence[str], ours: Callable, theirs: Callable) -> None:
    rng = random.Random(repr(tags))
    for _ in range(500):
        gold, predicted = draw(tags, rng)
        assert span_f1(gold, predicted, ours) == pytest.approx(theirs(gold, predicted), abs=1e-12), (gold, predicted)


@pytest.mark.parametrize("name", MOCK)
def test_f1_of_xtreme_s_mock_rows(name: str) -> None:
    gold, said = ([sentence.split() for sentence in side.split("/")] for side in MOCK[name])
    sentences = [Sentence(str(place), ("word",) * len(tags), tuple(tags), "xx") for place, tags in enumerate(gold)]
    if name.startswith("panx"):
        f1, strict = f1_of_version_0(gold, said), f1_of_version_1(gold, said, strict=True)
        assert f1 == pytest.approx(4 / 10)
        expected = {"ner_f1": f1, "ner_f1_strict": strict}
        measured = NER.measure(sentences, said)
    else:
        expected = {"pos_f1_seqeval0": f1_of_version_0(gold, said), "pos_f1_seqeval1": f1_of_version_1(gold, said)}
        measured = POS.measure(sentences, said)
        del measured["pos_accuracy"]
        assert ("differ" in name) == (expected["pos_f1_seqeval0"] != expected["pos_f1_seqeval1"])
    assert {metric: one.value for metric, one in measured.items()} == pytest.approx(expected)
