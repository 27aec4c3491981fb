"""Our scores against the slow reference, on random tags and answers, and on rows of XTREME's mock files.

The rows are from google-research/xtreme 838c13b69daa, mock_test_data: Copyright 2020 Google and DeepMind, Apache-2.0.
"""

from __future__ import annotations

import random

import pytest

from tests.parity import slow_scores as slow
from xalign_ray.tasks.mlqa import best_match, exact_match, normalise, token_f1
from xalign_ray.tasks.pos import UPOS
from xalign_ray.tasks.task import accuracy
from xalign_ray.tasks.token_classification import lenient_spans, runs, span_f1, strict_spans

CLOSE = 1e-9
IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-PER-x", "I-PER-x")
READINGS = {
    "lenient": (lenient_spans, slow.conlleval_spans, IOB[:5]),
    "strict": (strict_spans, slow.strict_spans, IOB),
    "runs": (runs, slow.run_spans, UPOS),
}
MOCK_NAMES = (  # panx/test-my: labels, predictions
    "B-LOC B-LOC O O O O O O O O O/O O O O O B-PER B-PER O",
    "B-LOC B-LOC O O O O B-ORG O O O O/O O O O B-ORG B-ORG B-ORG O",
)
MOCK_TAGS = (  # udpos/test-bg
    "PRON AUX PUNCT SCONJ VERB AUX VERB PUNCT ADP ADJ NOUN ADP NOUN PRON PUNCT/AUX INTJ VERB AUX AUX VERB PUNCT",
    "PRON VERB PUNCT SCONJ VERB PART VERB PUNCT ADP ADV NOUN ADP NOUN PRON PUNCT/ADV ADV AUX PART PRON VERB PUNCT",
)
MOCK_ANSWERS = [  # mlqa/test-de, test-ar: label, prediction
    ("de", "3050 und 3350 Meter", "3050 und 3350"),
    ("ar", *["\u0627\u0644\u0637\u0631\u0642 \u0627\u0644\u062a\u0631\u0627\u0628\u064a\u0629"] * 2),
]  # fmt: skip
ALPHABETS = {
    "en": "a an the The theory and cat-a \u201cThe\u201d 3.5 x_y",
    "de": "der Die das DES dessen ein-eine Ende \u201eeinem\u201c Stra\u00dfe",
    "es": "un una las \u00bfel? la-los ella unos a\u00f1o \u00a1Las!",
    "vi": "c\u1ee7a L\u00e0 c\u00e1i chi\u1ebfc nh\u1eefng l\u00e0m c\u1ee7a, ng\u01b0\u1eddi",
    "ar": "\u0627\u0644\u0637\u0631 \u0627\u0644 \u0648\u0627\u0644\u0631\u060c \u0628\u0627\u0644 \u061f\u0644\u0627",
    "hi": "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u093e\u0964 the \u0926\u0947\u0936",
    "zh": "\u4e00\u4e8c 3\u5c4aNBA \uff0c \u300a\u4e09\u300b the\u56db \u9fa5 \u9fa6 1,000",
}  # fmt: skip


@pytest.mark.parametrize("name", READINGS)
def test_f1_of_spans_on_random_tags(name: str) -> None:
    ours, theirs, tags = READINGS[name]
    rng = random.Random(name)
    for _ in range(300):
        lengths = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 6))]
        gold, said = ([[rng.choice(tags) for _ in range(n)] for n in lengths] for _ in range(2))
        said = [
            [rng.choice((one, other)) for one, other in zip(*pair, strict=True)]
            for pair in zip(gold, said, strict=True)
        ]
        assert span_f1(gold, said, ours) == pytest.approx(slow.micro_f1(gold, said, theirs), abs=CLOSE)


def test_runs_are_xtreme_s_but_for_the_tags_that_its_tool_takes_for_single_words() -> None:
    rng = random.Random(1)
    tags = [tag for tag in UPOS if tag[0] not in "SI"]
    for _ in range(300):
        gold, said = ([[rng.choice(tags) for _ in range(8)]] for _ in range(2))
        assert span_f1(gold, said, runs) == pytest.approx(slow.micro_f1(gold, said, slow.conlleval_spans), abs=CLOSE)
    assert runs(["SYM", "SYM"]) == {("SYM", 0, 2)}
    assert slow.conlleval_spans(["SYM", "SYM"]) == [("SYM", 0, 0), ("SYM", 1, 1)]


@pytest.mark.parametrize("language", ALPHABETS)
def test_answers_of_random_words_in_every_language_of_mlqa(language: str) -> None:
    words, rng = ALPHABETS[language].split(), random.Random(language)
    marks = ["", "", "", "-", "'", "\u2014", "\u3002", " "]
    for _ in range(300):
        texts = [
            "".join(rng.choice(words) + rng.choice(marks) + rng.choice(("", " ")) for _ in range(rng.randrange(7)))
            for _ in range(4)
        ]
        assert " ".join(normalise(texts[0], language)) == slow.normalise(texts[0], language)
        f1, exact = slow.answer_scores(texts[:1], [texts[1:]], lambda text: slow.normalise(text, language))
        assert best_match(texts[0], texts[1:], language, token_f1) == pytest.approx(f1, abs=CLOSE)
        assert best_match(texts[0], texts[1:], language, exact_match) == exact


def test_xtreme_s_mock_names_and_tags() -> None:
    gold, said = ([sentence.split() for sentence in side.split("/")] for side in MOCK_NAMES)
    assert span_f1(gold, said, lenient_spans) == pytest.approx(4 / 10, abs=CLOSE)
    for ours, theirs, _ in (READINGS["lenient"], READINGS["strict"]):
        assert span_f1(gold, said, ours) == pytest.approx(slow.micro_f1(gold, said, theirs), abs=CLOSE)
    gold, said = ([sentence.split() for sentence in side.split("/")] for side in MOCK_TAGS)
    assert span_f1(gold, said, runs) == pytest.approx(slow.micro_f1(gold, said, slow.conlleval_spans), abs=CLOSE)
    words = [[tag for tags in side for tag in tags] for side in (gold, said)]
    assert accuracy(*words).value == pytest.approx(slow.accuracy(*words), abs=CLOSE)


def test_xtreme_s_mock_answers() -> None:
    scores = [
        (best_match(said, [gold], code, token_f1), best_match(said, [gold], code, exact_match))
        for code, gold, said in MOCK_ANSWERS
    ]
    assert scores == [(pytest.approx(2 * 1 * 0.75 / 1.75, abs=CLOSE), 0.0), (1.0, 1.0)]
