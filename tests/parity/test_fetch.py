"""Fetching over real connections to a server of our own: resumed, checked, unpacked, and refused in sentences."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.parity.file_server import Site, tarred, zipped
from tests.unit.rules.tree import ROOT
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import fetch as fetching
from xalign_ray.sources.fetch import Download, downloads_of, fetch


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSE_S", 0.0)


def quiet(_: str) -> None:
    pass


CONTENT = bytes(range(256)) * 4000


def plain(site: Site, **more: object) -> dict:
    return {"title": "T", "licence": "L", "urls": [f"{site.address}/x.bin"], "files": ["deep/x.bin"], **more}


def test_a_connection_that_breaks_is_gone_on_with_where_it_broke(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"], site.break_after = CONTENT, 300_000
    listed["thing"] = plain(site, sums={"x.bin": [len(CONTENT), hashlib.sha256(CONTENT).hexdigest()]})
    assert fetch("thing", tmp_path / "out", [], quiet) == [tmp_path / "out/deep/x.bin"]
    assert (tmp_path / "out/deep/x.bin").read_bytes() == CONTENT
    assert site.ranges == ["", "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert [path.name for path in (tmp_path / "out/deep").iterdir()] == ["x.bin"]


def test_a_later_session_goes_on_and_what_is_there_is_not_fetched_again(
    tmp_path: Path, site: Site, listed: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TRIES", 1)
    site.files["/x.bin"], site.break_after = CONTENT, 0
    listed["thing"] = plain(site)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/.x.bin.part").write_bytes(CONTENT[:1000])
    (tmp_path / "deep/.x.bin.tag").write_text(site.tag)
    with pytest.raises(DataError) as caught:
        fetch("thing", tmp_path, [], quiet)
    assert str(caught.value) == (
        f"{site.address}/x.bin broke off after 1,000 bytes (1,024,000 were to come)."
        " Run the same command again: it goes on from there."
    )
    site.break_after = None
    fetch("thing", tmp_path, [], quiet)
    assert (tmp_path / "deep/x.bin").read_bytes() == CONTENT
    asked = len(site.ranges)
    fetch("thing", tmp_path, [], quiet)
    assert len(site.ranges) == asked


def test_a_full_disk_is_no_broken_connection(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"] = CONTENT * 3
    listed["thing"] = plain(site)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/.x.bin.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        fetch("thing", tmp_path, [], quiet)
    assert site.ranges == [""]


def test_a_file_that_changed_meanwhile_is_begun_again(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"], site.tag = CONTENT, '"two"'
    listed["thing"] = plain(site)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/.x.bin.part").write_bytes(b"older" * 1000)
    (tmp_path / "deep/.x.bin.tag").write_text('"one"')
    fetch("thing", tmp_path, [], quiet)
    assert (tmp_path / "deep/x.bin").read_bytes() == CONTENT
    assert site.ranges == ["bytes=5000-"]


def test_a_part_that_is_whole_already_is_taken(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"] = CONTENT
    listed["thing"] = plain(site)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/.x.bin.part").write_bytes(CONTENT)
    (tmp_path / "deep/.x.bin.tag").write_text(site.tag)
    fetch("thing", tmp_path, [], quiet)
    assert (tmp_path / "deep/x.bin").read_bytes() == CONTENT


def test_a_wrong_sum_or_size_is_refused_and_nothing_is_kept(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"] = CONTENT
    listed["thing"] = plain(site, sums={"x.bin": [None, "0" * 64]})
    with pytest.raises(DataError, match=r"gave a file with SHA-256 [0-9a-f]{64}, not 0{64}; it was removed\."):
        fetch("thing", tmp_path, [], quiet)
    listed["thing"] = plain(site, sums={"x.bin": [7, "0" * 64]})
    with pytest.raises(DataError, match=r"gave 1,024,000 bytes, not the 7 of the catalogue\."):
        fetch("thing", tmp_path, [], quiet)
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_published_list_of_sums_is_compared_with_by_the_dated_name(tmp_path: Path, site: Site, listed: dict) -> None:
    sums = f"{'1' * 40}  swwiki-20260901-other.bz2\n{hashlib.sha1(CONTENT).hexdigest()}  swwiki-20260901-x.bz2\n"
    site.files |= {"/swwiki-latest-x.bz2": CONTENT, "/sums": sums.encode()}
    entry = plain(site, urls=[f"{site.address}/{{theirs}}wiki-latest-x.bz2"], languages="sw")
    listed["wiki"] = entry | {"files": ["{theirs}.bz2"], "sha1_list": f"{site.address}/sums"}
    fetch("wiki", tmp_path, [], quiet)
    assert (tmp_path / "sw.bz2").read_bytes() == CONTENT
    site.files["/sums"] = sums.replace("20260901-x", "20260901-y").encode() + b"2" * 40 + b"  swwiki-20260901-x.bz2\n"
    (tmp_path / "sw.bz2").unlink()
    with pytest.raises(DataError, match=r"gave a file with SHA-1 [0-9a-f]{40}, not 2{40}; it was removed\."):
        fetch("wiki", tmp_path, [], quiet)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_are_unpacked_under_the_names_that_recipes_read(
    tmp_path: Path, site: Site, listed: dict, pack: object
) -> None:
    members = {"README": b"notes", "moses__C.de-en.de": b"Hund\n", "moses__C.de-en.en": b"dog\n"}
    site.files["/de-en.txt.zip"] = pack(**members)  # type: ignore[operator]
    listed["corpus"] = {
        **plain(site, urls=[f"{site.address}/{{pair}}.txt.zip"], pairs="de-en en-fr", unpack="members"),
        "files": ["opus/C.{pair}.{first}", "opus/C.{pair}.{second}"],
    }
    assert fetch("corpus", tmp_path, ["en", "de"], quiet) == [
        tmp_path / "opus/C.de-en.de",
        tmp_path / "opus/C.de-en.en",
    ]
    assert (tmp_path / "opus/C.de-en.de").read_bytes() == b"Hund\n"
    assert sorted(path.name for path in (tmp_path / "opus").iterdir()) == ["C.de-en.de", "C.de-en.en"]
    assert list((tmp_path / ".fetched").iterdir()) == []


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_folder_is_there_when_all_of_it_is(tmp_path: Path, site: Site, listed: dict, pack: object) -> None:
    site.files["/x.zip"] = pack(sub__a=b"1", b=b"2")  # type: ignore[operator]
    listed["task"] = {**plain(site, urls=[f"{site.address}/x.zip"], unpack="folder", folder="task"), "files": []}
    assert fetch("task", tmp_path, [], quiet) == [tmp_path / "task"]
    assert (tmp_path / "task/sub/a").read_bytes() == b"1"
    assert (tmp_path / "task/b").read_bytes() == b"2"


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_stay_in_the_folder(tmp_path: Path, site: Site, listed: dict, pack: object) -> None:
    site.files["/x.zip"] = pack(**{"..__evil": b"1"})  # type: ignore[operator]
    listed["task"] = {**plain(site, urls=[f"{site.address}/x.zip"], unpack="folder", folder="a/task"), "files": []}
    with pytest.raises(DataError, match=r"outside the destination") if pack is tarred else nullcontext():
        fetch("task", tmp_path, [], quiet)
    assert not [*tmp_path.glob("evil"), *tmp_path.glob("a/evil"), *tmp_path.glob(".fetched/evil")]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"no archive", r"cannot be unpacked \("), (zipped(a=b""), "has 0 members")],
    ids=["no archive", "another archive"],  # not their bytes, which hold the time
)
def test_an_archive_of_another_kind_is_refused(
    tmp_path: Path, site: Site, listed: dict, content: bytes, message: str
) -> None:
    site.files["/x.bin"] = content
    listed["corpus"] = plain(site, unpack="members")
    with pytest.raises(DataError, match=message):
        fetch("corpus", tmp_path, [], quiet)


def test_what_the_server_does_not_have_is_said(tmp_path: Path, site: Site, listed: dict) -> None:
    listed["thing"] = plain(site)
    with pytest.raises(DataError) as caught:
        fetch("thing", tmp_path, [], quiet)
    assert str(caught.value) == f"{site.address}/x.bin cannot be fetched: the server says 404 Not Found."


def test_without_a_network_one_line_says_so(tmp_path: Path, site: Site, listed: dict) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    listed["thing"] = plain(site, urls=[f"http://127.0.0.1:{port}/x.bin"])
    with pytest.raises(DataError) as caught:
        fetch("thing", tmp_path, [], quiet)
    assert str(caught.value) == "No network: 127.0.0.1 cannot be reached ([Errno 111] Connection refused)."
    assert caught.value.exit_code == 1


def test_unknown_names_and_languages_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"there is no 'europal' in the catalogue.*Did you mean 'europarl'\?"):
        fetch("europal", Path("out"), [], quiet)
    with pytest.raises(ConfigError, match=r"europarl has nothing in it, fi; the catalogue lists bg-en, de-en"):
        downloads_of("europarl", ["it", "fi"])
    with pytest.raises(ConfigError, match=r"europarl has nothing in fi; the catalogue lists bg-en, de-en"):
        downloads_of("europarl", ["de", "en", "fi"])
    with pytest.raises(ConfigError, match=r"papers/weam-de has nothing in deu; the catalogue lists de, en\."):
        fetch("papers/weam-de", Path("out"), ["en", "deu"], quiet)


def test_a_recipe_is_fetched_in_the_languages_that_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def note(download: Download, *_: object) -> None:
        asked.extend(download.files)

    monkeypatch.setattr(fetching, "_fetch_one", note)
    said: list[str] = []
    fetch("papers/weam-de", tmp_path, ["en"], said.append)
    assert asked == ["wikipedia/enwiki-latest-pages-articles-multistream.xml.bz2"]
    assert said == [], "its words are aligned by prepare: no file of an alignment is wanted"


def test_what_a_recipe_reads_and_nobody_offers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetching, "_fetch_one", lambda *_: None)
    said: list[str] = []
    fetch("derived/align-mlm", tmp_path, [], said.append)
    made = "it is made here (`xalign data derive`, `xalign data align`), or is yours."
    assert f"dictionaries/en-en-x-inv.25.txt is not fetched: {made}" in said


def test_the_command_says_in_one_line_that_there_is_no_network(tmp_path: Path) -> None:
    nowhere = {"https_proxy": "http://127.0.0.1:9", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "xalign_ray", "data", "fetch", "xnli", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=nowhere, timeout=60)
    assert done.returncode == 1
    fetching_line, *told = done.stderr.splitlines()
    assert fetching_line == "fetching https://dl.fbaipublicfiles.com/XNLI/XNLI-1.0.zip"
    assert told == ["xalign: No network: dl.fbaipublicfiles.com cannot be reached ([Errno 111] Connection refused)."]


def test_page_that_a_server_sends_in_place_of_a_file_is_refused(tmp_path: Path, site: Site, listed: dict) -> None:
    site.files["/x.bin"] = b"<!DOCTYPE html>\n<html>Please log in</html>"
    listed["thing"] = plain(site)
    with pytest.raises(DataError) as caught:
        fetch("thing", tmp_path, [], quiet)
    assert str(caught.value).startswith(f"{site.address}/x.bin is a pointer to the file, a web page")
    assert not list((tmp_path / "deep").iterdir())
