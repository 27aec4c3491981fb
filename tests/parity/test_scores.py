"""Our scores of answers against the slow reference, on random answers and on rows of XTREME's mock files.

The rows are from google-research/xtreme 838c13b69daa, mock_test_data: Copyright 2020 Google and DeepMind, Apache-2.0.
"""

from __future__ import annotations

import random

import pytest

from tests.parity import slow_scores as slow
from xalign_ray.tasks.question_answering import best_match, exact_match, mlqa_tokens, squad_tokens, token_f1

CLOSE = 1e-9
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


@pytest.mark.parametrize("language", ALPHABETS)
def test_answers_of_random_words_in_every_language_of_mlqa(language: str) -> None:
    words, rng = [*ALPHABETS[language].split(), *slow.ARTICLES.get(language, "").split()], random.Random(language)
    marks = ["", "", "", "-", "'", "\u2014", "\u3002", " "]
    for _ in range(300):
        texts = [
            "".join(rng.choice(words) + rng.choice(marks) + rng.choice(("", " ")) for _ in range(rng.randrange(7)))
            for _ in range(4)
        ]
        assert " ".join(mlqa_tokens(texts[0], language)) == slow.normalise(texts[0], language)
        for tokens, normal in (
            (mlqa_tokens, lambda text: slow.normalise(text, language)),
            (squad_tokens, slow.squad_normalise),
        ):
            f1, exact = slow.answer_scores(texts[:1], [texts[1:]], normal)
            assert best_match(texts[0], texts[1:], language, token_f1, tokens) == pytest.approx(f1, abs=CLOSE)
            assert best_match(texts[0], texts[1:], language, exact_match, tokens) == exact


def test_xtreme_s_mock_answers() -> None:
    scores = [
        (
            best_match(said, [gold], code, token_f1, mlqa_tokens),
            best_match(said, [gold], code, exact_match, mlqa_tokens),
        )
        for code, gold, said in MOCK_ANSWERS
    ]
    assert scores == [(pytest.approx(2 * 1 * 0.75 / 1.75, abs=CLOSE), 0.0), (1.0, 1.0)]
