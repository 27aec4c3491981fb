"""Files that are not the data their name promises are refused at their first bytes, wherever they are opened."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from tests.unit.results.run_folders import score, write_run
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import FORMATS, find_files, parts, read
from xalign_ray.tasks.retrieval import read_pair
from xalign_ray.tasks.scores import write_scores
from xalign_ray.tasks.task_files import read_lines
from xalign_ray.work.file_checks import (
    check_first_bytes,
    check_safetensors,
    check_sentences,
    check_text,
    open_file,
)

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:919dc2c2272282c4\nsize 330454481\n"
NO_DATA = {
    "LFS": POINTER,
    "annex": b"/annex/objects/SHA256E-s1--00.txt\n",
    "annex, as a link": b"../../.git/annex/objects/Mx/1k/SHA256E-s1--00.txt",
    "cache of the hub": b"../../blobs/" + b"8f2a" * 10,
    "DVC": b"outs:\n- md5: a304afb9\n  size: 37\n  path: data.txt\n",
    "HTML without its element": b"<head><title>Just a moment...</title></head>\n",
    "HTML": b"\n<!DOCTYPE html>\n<html><title>404</title></html>\n",
    "bare HTML": b"\xef\xbb\xbf<HTML><body>Too many requests</body></HTML>",
    "XHTML": b'<?xml version="1.0"?>\n<!-- x -->\n<!DOCTYPE html PUBLIC "-">\n<html>',
    "S3": b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>no</Message></Error>',
    "Azure": b'\xef\xbb\xbf<?xml version="1.0"?><Error><Code>BlobNotFound</Code></Error>',
}
IS_POINTER = "is a pointer to the file, a web page or a server's message, not the file itself. Fetch the file again"
IS_ARCHIVE = "is an archive, which is not read here. Unpack it"
IS_OTHER = "is no plain text, but binary, XML or JSON. Read it with the format that fits"
NO_TEXT = {
    "tar": b"name".ljust(257, b"\0") + b"ustar\x0000",
    "zip": b"PK\x03\x04rest",
    "xz": b"\xfd7zXZ\x00rest",
    "twice": gzip.compress(b"text"),
    "Parquet": b"PAR1rest",
    "PDF": b"%PDF-1.7\n",
    "references": b'{"version": 1, "refs": {\n"a": ["x"]}}\n',
    "JSON lines": b'{"text": "a"}\n{"text": "b"}\n',
    "HF": b'{"error":"Repository not found"}',
    "WikiExtractor": b'<doc id="12" url="https://x" title="A">\nA\n\nText.\n</doc>\n',
    "SGML": b'<srcset setid="newstest2014" srclang="any">\n',
    "dump": b'<mediawiki xmlns="x">\n',
}
NO_SENTENCES = {
    "vertical": b'<text id="1">\n<s>\nThe\tDT\tthe\n',
    "Europarl": b"<CHAPTER ID=1>\r\nResumption of the session\r\n",
    "SubRip": b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:02,000\r\nHello.\r\n",
    "WebVTT": b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n",
    "PO": b'# German\nmsgid ""\nmsgstr ""\n',
    "CoNLL-U": b"# text = a\n1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n\n",
    "Leipzig": b"1\tOne.\n2\tTwo.\n3\tThree.\n",
}
DATA = {
    "text": b"The cat sees 500 things.\n",
    "a number": b"404\n",
    "an angle": b"<s> a sentence </s>\n<doc\n",
    "a brace": b"{a} is a set\n",
    "found": b"not found here\n",
    "version": b"version https://example.org/spec/v1\n",
    "a page behind text": b"a\n<!DOCTYPE html>\n",
    "nothing": b"",
    "GPT-2's tokenizer": b'{"errors": "replace", "unk_token": "<|endoftext|>", "add_prefix_space": false}',
    "an index": b'{"metadata": {"total_size": 1}, "weight_map": {}}',
}


@pytest.mark.parametrize("name", NO_DATA)
def test_file_that_is_no_data_is_refused_by_every_format(tmp_path: Path, name: str) -> None:
    content = NO_DATA[name]
    for format_, entry in FORMATS.items():
        paths = [str(tmp_path / f"{format_}{number}") for number in range(entry.paths[0] if entry.paths else 1)]
        for path in paths:
            Path(path).write_bytes(content)
        with pytest.raises(DataError) as caught:
            list(read(format_, paths, ["en"] if entry.holds == ("documents",) else ["en", "de"]))
        assert str(caught.value).startswith(f"{paths[0]} {IS_POINTER}"), format_


@pytest.mark.parametrize("name", NO_DATA)
def test_packed_file_that_is_no_data_is_refused(tmp_path: Path, name: str) -> None:
    content = NO_DATA[name]
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content))
    for format_ in ("text", "jsonl", "wikipedia"):
        with pytest.raises(DataError) as caught:
            list(read(format_, [str(path)], ["en"]))
        assert str(caught.value).startswith(f"{path} {IS_POINTER}"), format_


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize("name", NO_TEXT)
def test_file_that_is_no_text_is_refused_by_formats_of_lines(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    content = NO_TEXT[name]
    said = IS_ARCHIVE if name in ("tar", "zip", "xz") else IS_OTHER
    if pack is bytes and name == "twice":
        content = gzip.compress(content)
    path = tmp_path / "a"
    path.write_bytes(pack(content))
    for format_ in ("text", "conllu", "tsv", *(() if name == "zip" else ("muse",))):  # a dictionary may lie in a zip
        with pytest.raises(DataError) as caught:
            parts(format_, [str(path)])
        assert str(caught.value).startswith(f"{path} {said}"), format_


@pytest.mark.parametrize("name", NO_SENTENCES)
def test_lines_that_are_no_sentences_are_refused_by_formats_of_sentences(tmp_path: Path, name: str) -> None:
    content = NO_SENTENCES[name]
    path = tmp_path / "a"
    path.write_bytes(content)
    for format_, paths in (("text", [str(path)]), ("moses", [str(path), str(path)])):
        with pytest.raises(DataError) as caught:
            parts(format_, paths)
        assert str(caught.value).startswith(f"{path} is no text of a sentence a line."), format_
        assert "out of it. It begins: " in str(caught.value), format_


@pytest.mark.parametrize(
    "text", [b"<s> a sentence </s>\n", b"1\tOne.\nTwo.\n", b"1 2\n00:10 it began\n", b"# a\nmsgid\n"]
)
def test_sentences_that_look_like_another_format_pass(text: bytes) -> None:
    check_sentences("a", text)


@pytest.mark.parametrize("name", DATA)
def test_data_passes(name: str) -> None:
    check_first_bytes("a", DATA[name])
    check_text("a", DATA[name], json_lines=DATA[name].startswith(b'{"'))


def test_json_lines_are_read_by_their_own_formats(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "message": "b"}\n')
    assert len(list(read("jsonl", [str(path)], ["en"]))) == 1


def test_tar_archive_under_a_gz_name_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    path = tmp_path / "a.txt.gz"
    path.write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"a\.txt\.gz is an archive"):
        parts("text", [str(path)])


def test_task_files_are_looked_at_as_well(tmp_path: Path) -> None:
    paths = tmp_path / "tatoeba.de-en.de", tmp_path / "tatoeba.de-en.en"
    for path in paths:
        path.write_bytes(POINTER)
    with pytest.raises(DataError, match=r"tatoeba\.de-en\.de is a pointer to the file"):
        read_pair(paths)
    with pytest.raises(DataError, match=r"is a pointer to the file"):
        read_lines(paths[1])


def test_only_plain_files_and_links_to_them_are_data(tmp_path: Path) -> None:
    pipe, link, loop, file = (tmp_path / name for name in ("a.pipe", "b.txt", "c.txt", "d.txt"))
    os.mkfifo(pipe)
    file.write_text("x\n")
    link.symlink_to(file)
    loop.symlink_to(loop)
    for path, said in (
        (pipe, "is a named pipe, not a plain file. Give a file that holds the data."),
        (Path("/dev/zero"), "is a device, not a plain file. Give a file that holds the data."),
        (loop, "cannot be opened: Too many levels of symbolic links."),
    ):
        with pytest.raises(DataError) as caught:
            open_file(path)
        assert str(caught.value) == f"{path} {said}"
    with open_file(link) as opened:
        assert opened.read() == b"x\n"
    assert find_files([f"{tmp_path}/[bd].txt"]) == [str(link), str(file)]
    with pytest.raises(DataError, match=r"a\.pipe is a named pipe"):
        find_files([f"{tmp_path}/*.pipe"])


def test_safetensors_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "model.safetensors", save({"a": torch.zeros(3, 4), "b": torch.ones(2)})
    path.write_bytes(whole)
    check_safetensors(path)
    for content, said in (
        (whole[:-1], rf"has {len(whole) - 1} bytes, its header says {len(whole)}: it is not whole"),
        (whole + b"x", rf"has {len(whole) + 1} bytes, its header says {len(whole)}"),
        (whole[:20], r"is no safetensors file, or its header is cut short \(20 bytes\)"),
        (b"", r"is no safetensors file, or its header is cut short \(0 bytes\)"),
        (POINTER, "is a pointer to the file"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=said):
            check_safetensors(path)


@pytest.mark.parametrize("name", ["events.jsonl", "manifest.json", "config.yaml", "evaluation/tatoeba/scores.json"])
def test_pipe_in_a_run_folder_keeps_no_report_waiting(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "run")
    write_scores(tmp_path / "run/evaluation/tatoeba/scores.json", [score()])
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    code = f"from xalign_ray.results.sources import find_runs; find_runs([{str(tmp_path / 'run')!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, b"DataError" in done.stderr) in ((0, False), (1, True))
