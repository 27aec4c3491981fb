"""Line ends, byte-order marks and languages of task files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.task_files import choose_languages, name_language, name_pattern, read_lines
from xalign_ray.tasks.text_classification import ClassificationTask
from xalign_ray.verbs.scores import tune


def test_a_byte_order_mark_and_crlf_are_no_text(tmp_path: Path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\nfour")
    assert read_lines(path) == ["one", "two", "", "four"]


def test_empty_lines_at_the_end_are_no_lines(tmp_path: Path):
    path = tmp_path / "text"
    path.write_bytes(b"\none\n\r\n\n")
    assert read_lines(path) == ["", "one"]


def test_only_a_line_feed_ends_a_line(tmp_path: Path):
    path = tmp_path / "text"
    path.write_text("a\u2028b\x85c\x0bd\n", encoding="utf-8", newline="")
    assert read_lines(path) == ["a\u2028b\x85c\x0bd"]


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(
        DataError,
        match=r"text, line 2: bytes are not UTF-8; convert the file to UTF-8",
    ):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(DataError, match="nowhere is missing; give the folder or file"):
        read_lines(tmp_path / "nowhere")


def test_languages_asked_for_are_taken_in_any_spelling():
    assert choose_languages({"de", "fr", "hi"}, ["fra", "de"], "here") == ["de", "fr"]
    assert choose_languages({"fr", "de"}, None, "here") == ["de", "fr"]


def test_a_language_that_the_data_lacks_is_named_beside_those_it_has():
    with pytest.raises(DataError, match=r"here has no sw; it has de, fr\."):
        choose_languages({"de", "fr"}, ["de", "sw"], "here")


def test_a_language_that_does_not_exist_is_a_usage_error():
    with pytest.raises(ConfigError, match="'German' is not a"):
        choose_languages({"de"}, ["German"], "here")


def test_a_file_name_without_a_language_names_the_file():
    with pytest.raises(DataError, match=r"tatoeba.q-eng: 'q' is not a language code"):
        name_language("q", Path("tatoeba.q-eng"))


def test_a_file_of_a_split_is_found_by_its_name_in_any_of_the_folders(tmp_path: Path):
    for name in ("a/deu/dev.txt", "a/deu/deeper/test.txt", "a/dev.txt", "b/en/train.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    task, deeper = ClassificationTask(name="such", files=("{language}/{split}.txt",)), tmp_path / "a/deu/deeper"
    assert task.find([tmp_path / "a", tmp_path / "b"]) == {
        "train": {"en": tmp_path / "b/en/train.txt"}, "dev": {"de": tmp_path / "a/deu/dev.txt"}, "test": {},
    }  # fmt: skip
    with pytest.raises(DataError) as caught:
        task.find([deeper])
    assert str(caught.value) == (
        f"{deeper}: no such files; they are called en/train.txt. Not read, since no name of the task fits: 1 file, "
        f"{deeper / 'test.txt'}."
    )


@pytest.mark.parametrize(
    ("name", "file", "parts"),
    [
        ("{language}_*-ud-{split}.iob2", "de_pud-ud-val.iob2", {"language": "de", "split": "val"}),
        ("{language}.{split}", "spanish-latam.dev", {"language": "spanish-latam", "split": "dev"}),
        ("{split}-context-{first}-question-{second}.json", "dev-context-zh-Hans-question-en.json",
         {"split": "dev", "first": "zh-Hans", "second": "en"}),
        ("{flores}.jsonl", "dev.jsonl", None),
        ("a.{split}.(txt|bio)", "a.test.bio", {"split": "test"}),
        ("a.{split}", "axtest", None),
    ],
)  # fmt: skip
def test_parts_of_a_name(name: str, file: str, parts: dict[str, str] | None):
    match = name_pattern(name, ["spanish-latam", ""]).fullmatch(file)
    assert (match and match.groupdict()) == parts


def test_a_line_of_more_than_16_megabytes_is_refused_before_the_file_is_in_memory(tmp_path: Path):
    path = tmp_path / "train-en.tsv"
    path.write_bytes(b"a\tb\n" + b"x" * (18 << 20))
    with pytest.raises(DataError, match="line 2: line or document is longer than 16 MB; this is no file of"):
        read_lines(path)


def test_files_of_other_names_are_named_before_ray_is_imported(tmp_path: Path):
    for name in ("train-english.tsv", "german.tsv", "dev-en.tsv", "test-de.tsv", *(f"note{n}.md" for n in range(4))):
        (tmp_path / name).write_text("a\tNOUN\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom xalign_ray.errors import DataError\n"
        "from xalign_ray.verbs.scores import tune\n"
        "try:\n    tune('no-model', 'pos', [Path(sys.argv[1])], out=Path(sys.argv[1], 'out'))\n"
        "except DataError as error:\n    print(error)\n"
        "print('ray' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    said, ray = done.stdout.splitlines()
    assert ray == "False"
    assert said.startswith(f"{tmp_path}: no train file in en, such as ")
    assert " Not read, since no name of the task fits: 6 files, " in said
    assert str(tmp_path / "train-english.tsv") in said or " and 1 more." in said


def test_a_tuning_says_which_files_it_does_not_read_before_it_imports_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("en.train.conllu", "en.dev.conllu", "de.test.conllu", "german.conllu"):
        (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, "xalign_ray.studies.queue", None)  # what imports Ray
    with pytest.raises(ImportError):
        tune("no-model", "pos", [tmp_path], out=tmp_path / "out")
    assert capsys.readouterr().err == (
        f"Fine-tuning no-model on pos: planning; output is {tmp_path / 'out'}.\n"
        f"pos: Not read, since no name of the task fits: 1 file, {tmp_path / 'german.conllu'}.\n"
    )
    with pytest.raises(DataError, match="has no fr; it has de, en"):
        tune("no-model", "pos", [tmp_path], out=tmp_path / "out", languages=["de", "fr"])
