"""SQuAD's JSON: whose file a name means, and what a file must hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.question_answering import Answer, Question, pair_languages, read_squad
from xalign_ray.tasks.registry import TUNED_TASKS

MLQA, SQUAD, TYDIQA, XQUAD = (TUNED_TASKS[name] for name in ("mlqa", "squad", "tydiqa", "xquad"))

CONTEXT = "K\u00e4the sah 1999 den Hund."


def squad(rows: Sequence[Mapping[str, object]], context: str = CONTEXT) -> dict[str, object]:
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(rows)}]}]}


def row(key: object = "q1", text: str = "den Hund", start: object = 15, question: str = "Wen?") -> dict[str, object]:
    return {"id": key, "question": question, "answers": [{"text": text, "answer_start": start}]}


def write(folder: Path, content: object, name: str = "dev-de.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_files_are_found_by_all_published_names(tmp_path: Path):
    names = [
        "dev-context-de-question-de.json", "dev-context-en-question-de.json", "test-context-zh-question-vi.json",
        "xquad.el.json", "train-v1.1.json", "dev-v1.1.json", "squad.translate.train.en-de.json",
        "tydiqa.goldp.sw.dev.json", "vi_squad-translate-train-train-v1.1.json", "test-hi.json",
        "vi_squad-translate-train-dev-v1.1.json", "README.md",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).touch()
    lent = {"train": {"en": names[4], "de": names[6], "vi": names[8]}, "dev": {"en": names[5], "sw": names[7]}}
    expected = {
        MLQA: lent | {
            "dev": lent["dev"] | {"de": names[0], "en-de": names[1]}, "test": {"zh-vi": names[2], "hi": names[9]}
        },
        XQUAD: lent | {"test": {"el": names[3], "hi": names[9]}},
        TYDIQA: lent | {"test": {"hi": names[9]}},
        SQUAD: lent | {"test": {}},
    }  # fmt: skip
    for task, files in expected.items():
        found = task.find([tmp_path])
        assert {split: {code: path.name for code, path in one.items()} for split, one in found.items()} == files
    chosen = {task.name: task.choose_tested(task.find([tmp_path]), None, "en", [tmp_path]) for task in expected}
    assert chosen == {
        "mlqa": {"de": "dev", "en-de": "dev", "hi": "test", "zh-vi": "test"},
        "xquad": {"el": "test", "hi": "test"},
        "tydiqa": {"hi": "test", "sw": "dev"},
        "squad": {"en": "dev"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("de", ("de", "de")), ("de-en", ("de", "en")), ("en-de", ("en", "de")), ("en-DE", ("en-DE", "en-DE")),
        ("deu-eng", ("de", "en")), ("zh-Hans-en", ("zh-Hans", "en")), ("zh-hans", ("zh-Hans", "zh-Hans")),
        ("qgr-en", ("qgr", "en")),
    ],
)  # fmt: skip
def test_a_name_says_the_languages_of_context_and_question(name: str, languages: tuple[str, str]):
    assert pair_languages(name) == languages


def test_a_name_of_no_language_is_refused():
    with pytest.raises(ConfigError, match="'xx-yy-zz' is not a language code"):
        pair_languages("xx-yy-zz")


def test_a_question_has_context_answers_and_both_languages(tmp_path: Path):
    two = {
        "id": 7,
        "question": "Wann?",
        "answers": [{"text": "1999", "answer_start": 10}, {"text": "sah", "answer_start": 6}],
    }
    path = write(tmp_path, squad([row(), two]))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_squad(path, "de", "en") == [
        Question("q1", "Wen?", CONTEXT, (Answer("den Hund", 15),), "en", "de"),
        Question("7", "Wann?", CONTEXT, (Answer("1999", 10), Answer("sah", 6)), "en", "de"),
    ]


@pytest.mark.parametrize(
    ("answers", "read"),
    [
        ({"text": ["den Hund", "sah"], "answer_start": [15, 6]}, (Answer("den Hund", 15), Answer("sah", 6))),
        ({"answer_start": [], "text": []}, ()),
        (None, ()),
    ],
)
def test_answers_in_the_form_of_hugging_face_or_null(tmp_path: Path, answers: object, read: tuple[Answer, ...]):
    path = write(tmp_path, squad([row(), row("q2") | {"answers": answers}]))
    assert read_squad(path, "de", "de")[1].answers == read


def test_ids_that_a_file_repeats_are_numbered(tmp_path: Path):
    path = write(tmp_path, squad([row("12"), row("3"), row("12")]))
    assert [question.key for question in read_squad(path, "de", "de")] == ["12#1", "3", "12#2"]


def test_lost_answers_of_translations_are_read_as_none(tmp_path: Path):
    lost = row("q2", "", 0)
    path = write(tmp_path, squad([row(), lost, lost | {"id": "q3", "answers": []}]))
    assert [len(question.answers) for question in read_squad(path, "de", "de")] == [1, 0, 0]


@pytest.mark.parametrize(
    ("text", "start"), [("den Hund", 14), ("den Hund", 500), ("den Hund", -10), ("den Hund", "15"), ("Den Hund", 15)]
)
def test_an_answer_that_is_not_where_it_says_is_named_by_file_and_id(tmp_path: Path, text: str, start: object):
    path = write(tmp_path, squad([row(), row("q2", text, start)]))
    message = f"{path}, question q2: the context does not hold the answer {text!r} at character {start}; correct its"
    with pytest.raises(DataError, match=re.escape(message)):
        read_squad(path, "de", "de")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [row()],
            "is not SQuAD 1.1: it is a list or has no data; read is a JSON object whose data lists articles, their",
        ),
        (row(), "is not SQuAD 1.1: it is a list or has no data; read is a JSON object"),
        ({"data": [{"paragraphs": [{"qas": [row()]}]}]}, "is not SQuAD 1.1: 'context' is missing; read is a JSON ob"),
        (squad([{"id": "q1", "answers": []}]), "is not SQuAD 1.1: 'question' is missing; read is a JSON object"),
        (squad([row() | {"question": None}]), "is not SQuAD 1.1: question q1 has a text that is none; read is"),
        (squad([row() | {"answers": [{"text": "sah"}]}]), "is not SQuAD 1.1: 'answer_start' is missing; read is"),
        (squad([row() | {"answers": {"text": ["a", "b"], "answer_start": [1]}}]), "is not SQuAD 1.1: zip() argument"),
        (squad([]), "holds no question."),
        (squad([row(text="", start=0)]), "no question has an answer. XTREME empties those of its test files: take the"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: object, message: str):
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        read_squad(path, "de", "de")


def test_a_file_that_is_no_json_or_no_utf8_or_missing_is_refused(tmp_path: Path):
    path = tmp_path / "dev-de.json"
    with pytest.raises(DataError, match=re.escape(f"{path} is missing; give the folder that holds the task's data.")):
        read_squad(path, "de", "de")
    path.write_bytes(b'{"id": "q1"}\n{"id": "q2"}\n')
    with pytest.raises(DataError, match=re.escape(f"{path} is not SQuAD 1.1: it holds JSON lines; read is a JSON obj")):
        read_squad(path, "de", "de")
    path.write_bytes(b'{"data": [')
    with pytest.raises(DataError, match=re.escape(f"{path} is not SQuAD 1.1: Expecting value")):
        read_squad(path, "de", "de")
    path.write_bytes(b'{"data": "\xe4"}')
    with pytest.raises(DataError, match=re.escape(f"{path} is not SQuAD 1.1: 'utf-8' codec")):
        read_squad(path, "de", "de")
