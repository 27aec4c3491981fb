"""MLQA from tuning to scores in one language and across two, code-switching, and words replaced around answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from transformers import AutoModelForQuestionAnswering

from tests.unit.finetune.test_training_set import Recorded
from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.question_answering import Answer, Question
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task_files import choose_languages

MLQA, SQUAD, TYDIQA, XQUAD = (TUNED_TASKS[name] for name in ("mlqa", "squad", "tydiqa", "xquad"))

SPECIALS = 5  # pieces before the words of a vocabulary
NAMES = ["anna", "bob", "carl", "dora"]
ENGLISH = ["who", "runs", "sits", "today", "here", ".", "?"]
GERMAN = ["wer", "rennt", "sitzt", "heute", "hier", ".", "?"]
PIECES = list(dict.fromkeys([*NAMES, *ENGLISH, *GERMAN]))
SETTINGS = FineTuning(learning_rate=1e-2, num_train_epochs=10, train_batch_size=8, seed=1)

ONE = Question("1", "Who runs?", "Anna runs.", (Answer("Anna", 0),), "en", "en")
OTHER = Question("1", "Wer rennt?", "Heute rennt Anna.", (Answer("Anna", 12),), "de", "de")


def write(folder: Path, name: str, count: int, words: Sequence[str] = ENGLISH, asked: Sequence[str] = ENGLISH) -> None:
    """`runs anna today .`: who runs? The name, wherever it stands."""
    rows = []
    for number in range(count):
        answer, place = NAMES[number % 4], number // 4 % 4
        said = list(words[1:4])
        said.insert(place, answer)
        context = " ".join([*said, words[5]])
        answers = [{"text": answer, "answer_start": context.index(answer)}]
        question = {"id": str(number), "question": f"{asked[0]} {asked[1]} ?", "answers": answers}
        rows.append({"context": context, "qas": [question]})
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": rows}]}
    (folder / name).write_text(json.dumps(content))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "qa"
    folder.mkdir()
    write(folder, "train-v1.1.json", 24)
    write(folder, "dev-context-en-question-en.json", 8)
    return folder


@pytest.fixture
def encoder(make_bert: Callable[..., Path]) -> str:
    """A model to which a German word is its English one."""
    rows = {
        word: [float(place == at) * 3 for place in range(7)]
        for at, pair in enumerate(zip(ENGLISH, GERMAN, strict=True))
        for word in pair
    }
    return str(make_bert(PIECES, vectors=rows))


def by_name(scores: Sequence[Score]) -> dict[tuple[str, str], Score]:
    return {(score.metric, score.language): score for score in scores}


def test_answers_are_learnt_and_scored_in_one_language_and_across_two(tmp_path: Path, data: Path, encoder: str):
    write(data, "test-context-en-question-en.json", 12)
    write(data, "test-context-de-question-de.json", 8, GERMAN, GERMAN)
    write(data, "test-context-de-question-en.json", 6, GERMAN, ENGLISH)
    scores = tune_task(MLQA, encoder, [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    found = by_name(scores)
    assert {key: (score.value, score.n) for key, score in found.items()} == {
        (f"mlqa_{metric}{suffix}", language): (1.0, n)
        for metric in ("f1", "em")
        for suffix, language, n in [
            ("", "en", 12), ("", "de", 8), ("", "all", 20), ("_gxlt", "de-en", 6), ("_gxlt", "all", 6)
        ]
    }  # fmt: skip
    assert 0 < (found["mlqa_f1", "en"].chance or 0) < 0.5
    assert MLQA.evaluate(str(tmp_path / "out" / "model"), data) == scores
    only = MLQA.evaluate(str(tmp_path / "out" / "model"), data, ["de-en"])
    assert {(score.metric, score.language) for score in only} == {
        (metric, language) for metric in ("mlqa_f1_gxlt", "mlqa_em_gxlt") for language in ("de-en", "all")
    }


def test_languages_that_are_not_there_are_named(tmp_path: Path):
    found = {"de": tmp_path, "de-en": tmp_path}
    assert choose_languages(found, None, "here", MLQA.canonical) == ["de", "de-en"]
    assert choose_languages(found, ["deu"], "here", MLQA.canonical) == ["de"]
    with pytest.raises(DataError, match=r"here has no en-de, fr; it has de, de-en\."):
        choose_languages(found, ["fr", "de", "en-de"], "here", MLQA.canonical)


def test_a_pair_speaks_two_languages_and_a_model_must_know_both(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
):
    assert (MLQA.speaks("de-en"), MLQA.speaks("de")) == (("de", "en"), ("de",))
    write(data, "test-context-de-question-en.json", 2, GERMAN, ENGLISH)
    with pytest.raises(DataError, match="has language embeddings for en, fr, none for de"):
        tune_task(MLQA, str(make_bert(PIECES, languages=["en", "fr"])), [data], tmp_path / "out", settings=SETTINGS)


def test_unanswerable_question_of_a_dev_file_is_refused_before_training(tmp_path: Path, data: Path, encoder: str):
    path = data / "dev-context-en-question-en.json"
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][1]["qas"][0]["answers"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="1 of 8 questions have no answer, such as 1; each that is scored needs one"):
        tune_task(MLQA, encoder, [data], tmp_path / "out", settings=SETTINGS)
    assert not list((tmp_path / "out").rglob("*.safetensors"))


def test_each_benchmark_scores_its_own_files_by_its_own_rules_and_name(tmp_path: Path, data: Path, encoder: str):
    for name in ("xquad.de.json", "tydiqa.goldp.de.dev.json", "test-context-de-question-de.json"):
        write(data, name, 8, GERMAN, GERMAN)
    tune_task(MLQA, encoder, [data], tmp_path / "out", settings=SETTINGS, keep_model=True)
    model = str(tmp_path / "out" / "model")
    scored = {
        (score.task, score.split, score.metric, score.language)
        for task in (MLQA, XQUAD, TYDIQA)
        for score in task.evaluate(model, data)
        if score.language != "all"
    }
    assert scored == {
        (task, split, f"{task}_{metric}", language)
        for task, split, language in (
            ("mlqa", "test", "de"),
            ("mlqa", "dev", "en"),
            ("xquad", "test", "de"),
            ("tydiqa", "dev", "de"),
        )
        for metric in ("f1", "em")
    }
    config = Path(model, "config.json")
    config.write_text(config.read_text().replace('"xalign_task": "mlqa"', '"xalign_task": "squad"'))
    assert [score.value for score in MLQA.evaluate(model, data, ["de"])] == [1.0] * 4, "tuned for another of them"
    with pytest.raises(DataError, match=r"qa: no file to score squad on, such as train-v1.1.json; other tasks score"):
        SQUAD.evaluate(model, data)


def test_a_context_s_language_decides_how_answers_are_compared():
    german = Question("1", "Who?", "Der Hund rennt.", (Answer("Der Hund", 0),), "en", "de")
    assert MLQA.measure([german], ["Hund"])["mlqa_em_gxlt"].value == 1.0
    english = Question("1", "Wer?", "Der Hund rennt.", (Answer("Der Hund", 0),), "de", "en")
    assert MLQA.measure([english], ["Hund"])["mlqa_em_gxlt"].value == 0.0
    one = Question("1", "Wer?", "Der Hund rennt.", (Answer("Der Hund", 0),), "de", "de")
    assert XQUAD.measure([one], ["Hund"])["xquad_em"].value == 0.0, "SQuAD's rules know English articles only"


def test_sentence_switch_crosses_question_and_context_and_each_answer_stays_with_its_context():
    assert MLQA.switch(ONE, OTHER) == [
        Question("1", "Wer rennt?", "Anna runs.", (Answer("Anna", 0),), "de", "en"),
        Question("1", "Who runs?", "Heute rennt Anna.", (Answer("Anna", 12),), "en", "de"),
    ]


def test_a_translation_without_its_answer_is_left_out_on_its_own_side_only():
    lost = Question("1", "Wer rennt?", "Heute rennt sie.", (), "de", "de")
    assert MLQA.switch(ONE, lost) == [Question("1", "Wer rennt?", "Anna runs.", (Answer("Anna", 0),), "de", "en")]


Rows = Counter[tuple[str, ...]]


def trained_on(
    encoder: str, data: Path, out: Path, training: Training, epochs: int = 1, most: int | None = None
) -> list[Rows]:
    """The rows of each epoch that the model was trained on, as pieces without the special ones."""
    recorded = Recorded(AutoModelForQuestionAnswering)
    task = type("RecordedMlqa", (type(MLQA),), {"model_class": recorded})(**vars(MLQA))
    settings = FineTuning(
        learning_rate=1e-3, num_train_epochs=epochs, train_batch_size=8, seed=1, max_train_samples=most
    )
    tune_task(task, encoder, [data], out, settings=settings, training=training)
    rows = [
        [tuple(PIECES[piece - SPECIALS] for piece in row if piece >= SPECIALS) for row in batch["input_ids"].tolist()]
        for batch in recorded.batches
    ]
    size = len(rows) // epochs
    return [Counter(row for batch in rows[at : at + size] for row in batch) for at in range(0, len(rows), size)]


def written(number: int, words: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    """The pieces of a question that `write` wrote, with its context."""
    said = list(words[1:4])
    said.insert(number // 4 % 4, NAMES[number % 4])
    return (*asked[:2], "?", *said, ".")


@pytest.mark.parametrize("kind", ["translate_train", "sentence_switch"])
def test_translations_join_by_id_and_lost_answers_are_not_trained_on(
    tmp_path: Path, data: Path, encoder: str, kind: str
):
    write(data, "squad.translate.train.en-de.json", 6, GERMAN, GERMAN)
    path = data / "squad.translate.train.en-de.json"
    content = json.loads(path.read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"] = [{"text": "", "answer_start": 0}]
    path.write_text(json.dumps(content))
    (rows,) = trained_on(encoder, data, tmp_path / "out", Training(kind=kind))
    if kind == "translate_train":
        expected = [written(number, ENGLISH, ENGLISH) for number in range(24)]
        expected += [written(number, GERMAN, GERMAN) for number in range(1, 6)]  # 0 lost its answer
    else:
        expected = [written(number, ENGLISH, GERMAN) for number in range(6)]
        expected += [written(number, GERMAN, ENGLISH) for number in range(1, 6)]
    assert rows == Counter(expected)


def test_replaced_words_leave_the_answer_and_move_it():
    context = "The cat's (big) dog, Anna-Lena Bo, ran; the dog ran."
    answers = (Answer("Lena Bo", context.index("Lena")), Answer("dog", context.rindex("dog")))
    example = Question("1", "Who ran, the dog?", context, answers, "en", "en")
    words = {"dog": "der Hund", "ran": "lief", "big": "gro\u00df", "Anna": "X", "the": "", "Bo": "Y"}
    replaced = MLQA.replace_words(example, lambda word: words.get(word, word))
    assert replaced.question == "Who lief,  der Hund?"
    assert replaced.context == "The cat's (gro\u00df) der Hund, Anna-Lena Bo, lief;  dog lief."
    assert [replaced.context[answer.start :][: len(answer.text)] for answer in replaced.answers] == ["Lena Bo", "dog"]
    assert replaced.answers[1].start == replaced.context.rindex("dog")


def test_words_are_switched_anew_in_every_epoch_and_answers_never(tmp_path: Path, data: Path, encoder: str):
    dictionary = tmp_path / "en-de.txt"
    dictionary.write_text("".join(f"{one} {other}\n" for one, other in zip(ENGLISH[:5], GERMAN[:5], strict=True)))
    dictionary.write_text(dictionary.read_text() + "".join(f"{name} hier\n" for name in NAMES))
    training = Training(kind="word_switch", dictionaries=(str(dictionary),))
    epochs = trained_on(encoder, data, tmp_path / "out", training, epochs=3, most=16)
    english = dict(zip(GERMAN, ENGLISH, strict=True))
    for rows in epochs:
        back = Counter(tuple(english.get(word, word) for word in row) for row in rows.elements())
        assert back == Counter(written(number, ENGLISH, ENGLISH) for number in range(16))
        words = Counter(word for row in rows.elements() for word in row if word in {*ENGLISH[:4], *GERMAN[:4]})
        switched = sum(count for word, count in words.items() if word in GERMAN)
        assert switched == pytest.approx(words.total() / 2, abs=words.total() / 5)  # the default share
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
