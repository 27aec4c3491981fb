"""Line ends, byte-order marks and languages of task files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.files import choose_languages, find_split_files, name_language, read_lines


def test_a_byte_order_mark_and_crlf_are_no_text(tmp_path: Path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\nfour")
    assert read_lines(path) == ["one", "two", "", "four"]


def test_only_a_line_feed_ends_a_line(tmp_path: Path):
    path = tmp_path / "text"
    path.write_text("a\u2028b\x85c\x0bd\n", encoding="utf-8", newline="")
    assert read_lines(path) == ["a\u2028b\x85c\x0bd"]


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"text, line 2: not UTF-8 \(.*\); convert the file to UTF-8\."):
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
    pattern = re.compile(r"(?P<language>\w+)/(?P<split>train|dev|test)\.txt")
    for name in ("a/deu/dev.txt", "a/deu/deeper/test.txt", "a/dev.txt", "b/en/train.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_split_files([tmp_path / "a", tmp_path / "b"], [pattern], "such", ["en/dev.txt"])
    assert found == {
        "train": {"en": tmp_path / "b/en/train.txt"},
        "dev": {"de": tmp_path / "a/deu/dev.txt"},
        "test": {},
    }
    with pytest.raises(DataError, match=r"deeper: no such files; they are called en/dev.txt\."):
        find_split_files([tmp_path / "a/deu/deeper"], [pattern], "such", ["en/dev.txt"])
