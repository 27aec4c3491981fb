"""Folders of an S3 store on this disk: what is fetched, what is published and in which order, under faults too."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.s3_server import S3Server
from xalign_ray.checks import check_recipe
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.studies.study import run_study
from xalign_ray.train.on_ray import check_mirror
from xalign_ray.work import mirror
from xalign_ray.work.artifacts import hash_files, write_manifest
from xalign_ray.work.locks import hold
from xalign_ray.work.mirror import (
    JOB_MARK,
    check_lasting,
    data_of_run,
    fetch_checkpoint,
    fetch_listed,
    local_folder,
    opened,
    published,
    refresh,
    upload,
    url_of,
)
from xalign_ray.work.storage import CACHE, quoted

URL = "s3://store/runs/a"
KEPT = "All is in {}: the same command publishes it."


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PUBLISH_S", 0.02)


@pytest.fixture
def machine(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """The mirror of the run on a machine of that number, from then on."""

    def use(number: int) -> Path:
        monkeypatch.setenv(CACHE, str(tmp_path / f"machine-{number}"))
        s3.requests.clear()
        return local_folder(URL)

    assert s3.requests
    return use


def stored() -> set[str]:
    """Names in the run's folder of the store, but dots."""
    store = fsspec.filesystem("s3", use_listings_cache=False)
    names = {path.removeprefix("store/runs/a/") for path in store.find("store/runs/a")}
    return {name for name in names if not name.split("/")[-1].startswith(".")}


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def save(folder: Path, step: int) -> set[str]:
    """A whole checkpoint; the names of its files."""
    one = folder / "checkpoints" / f"step_{step:06d}"
    (one / "state").mkdir(parents=True)
    (one / "state" / "a.bin").write_bytes(bytes([step]) * 1000)
    write_manifest(one, {"step": step, "files": hash_files(one)})
    return {f"checkpoints/{one.name}/{name}" for name in ("state/a.bin", "manifest.json")}


def whole_run(folder: Path, *steps: int) -> set[str]:
    (folder / "config.yaml").write_text("a: 1\n")
    (folder / "events.jsonl").write_text("{}\n")
    return {"config.yaml", "events.jsonl"}.union(*(save(folder, step) for step in steps))


def requests(s3: S3Server, method: str) -> list[str]:
    """Keys that were asked for by a method, without those of the lock and the like."""
    keys = [path.removeprefix("/store/runs/a/") for asked, path in s3.requests if asked == method]
    return [key for key in keys if not key.split("/")[-1].startswith(".") and key != "/store"]


def test_a_url_has_one_folder_here_also_when_it_was_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    assert local_folder(URL) == local_folder(Path(URL)) == tmp_path / "s3" / "store" / "runs" / "a"
    assert url_of(local_folder(URL) / ".." / "b") == "s3://store/runs/b"
    assert local_folder("runs/a") == Path("runs/a")
    assert url_of(Path("runs/a")) is None


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["old/data/f00", "new/data/f00"], "old/data/f00"),
        (["new/data/f00"], "new/data/f00"),
        (["new/data/f11"], "old/data/f00"),  # not there: who opens it says so
    ],
)
def test_the_data_of_a_run_that_was_moved_with_them_lie_beside_it(tmp_path: Path, there: list[str], found: str) -> None:
    for folder in there:
        (tmp_path / folder).mkdir(parents=True)
    assert data_of_run(tmp_path / "new" / "run", str(tmp_path / "old/data/f00")) == tmp_path / found


def test_a_cache_behind_a_link_is_known_by_both_paths_and_may_be_the_disk_that_all_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to("scratch")
    monkeypatch.setenv(CACHE, str(tmp_path / "link"))
    assert url_of(local_folder(URL)) == url_of(local_folder(URL).resolve()) == URL  # as the driver tells the workers
    assert [url_of(tmp_path / place) for place in ("link", "link/runs/a", "scratch/.shards/x")] == [None] * 3


def test_a_file_url_is_the_path_and_a_store_of_no_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("file:///shared/runs/a", Path("file:///shared/runs/a"), "FILE:/shared/runs/a"):
        assert local_folder(url) == Path("/shared/runs/a")
    monkeypatch.setenv(JOB_MARK, "{}")
    check_lasting("output", "file:///shared/runs")
    check_lasting("output", "file:///shared/runs", in_job=True)
    with pytest.raises(
        DataError, match=r"foo://shared/runs: foo:// is not supported\. Give a path on a disk, or a URL "
    ):
        local_folder("foo://shared/runs")


def test_a_file_that_arrives_changed_is_fetched_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    system, folder = fsspec.filesystem("memory"), local_folder("memory://store/data/a")
    system.store.clear()
    system.pipe("/store/data/a/manifest.json", json.dumps({"files": {"x": sha256(b"right").hexdigest()}}).encode())
    system.pipe("/store/data/a/x", b"right")
    get, came = type(system).get_file, []

    def get_file(self: Any, there: str, here: str) -> None:
        get(self, there, here)
        came.append(there)
        if len(came) == 1:
            Path(here).write_bytes(b"wrong")

    monkeypatch.setattr(type(system), "get_file", get_file)
    fetch_listed(folder)
    assert (folder / "x").read_bytes() == b"right"
    assert len(came) == 2
    assert quoted(folder) == "memory://store/data/a", "a command names the store, not the mirror"


@pytest.mark.parametrize("name", ["../../outside", "{}/outside", "a/../../../outside", ".lock", ""])
def test_a_manifest_in_a_store_names_no_file_outside_its_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name.format(tmp_path)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    system, folder = fsspec.filesystem("memory"), local_folder("memory://store/data/a")
    system.store.clear()
    system.pipe("/store/data/a/manifest.json", json.dumps({"files": {name: "0" * 64}}).encode())
    system.pipe(f"/store/data/a/{name}", b"x")
    words = rf"memory://store/data/a/manifest.json is damaged: it names '{name}', which is no file of this folder\."
    with pytest.raises(DataError, match=words):
        fetch_listed(folder)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("cache", ["../cache", "~/cache", "a/../cache"])
def test_a_cache_by_any_path_is_known_again(cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv(CACHE, cache)
    assert url_of(local_folder(URL)) == URL
    assert local_folder(URL).is_relative_to(tmp_path / "home") == cache.startswith("~")


def test_a_run_is_published_and_only_what_resuming_needs_comes_back(
    s3: S3Server, machine: Callable[[int], Path]
) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        names = whole_run(first, 10, 20)
    assert stored() == names
    second = machine(2)
    with published(second, "pretrain", keep=2):
        here = {path.relative_to(second).as_posix() for path in second.rglob("*") if path.is_file()}
        assert {name for name in here if not name.startswith(".")} == {n for n in names if "step_000010" not in n}
    assert stored() == names
    assert requests(s3, "PUT") == requests(s3, "DELETE") == []  # all of it is known to be there


def test_what_was_removed_here_to_make_room_stays_in_the_store_and_comes_back(machine: Callable[[int], Path]) -> None:
    folder = machine(1)
    with published(folder, "pretrain"):
        names = whole_run(folder, 10, 20)
        (folder / "export").mkdir()
        (folder / "export" / "model.safetensors").write_bytes(b"weights")
    for name in ("export", "checkpoints"):
        shutil.rmtree(folder / name)
    for keep in (None, 2):  # who makes the export again, and who trains on
        with published(folder, "pretrain", keep=keep):
            (folder / "events.jsonl").write_text("{}\n" * (keep or 3))
            time.sleep(0.2)  # several passes
        assert stored() == names | {"export/model.safetensors"}
    assert (folder / "export" / "model.safetensors").read_bytes() == b"weights"
    assert (folder / "checkpoints" / "step_000020" / "manifest.json").is_file()


def test_a_new_checkpoint_is_whole_before_an_old_one_goes_its_manifest_first(
    s3: S3Server, machine: Callable[[int], Path]
) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first, 10, 20)
    second = machine(2)
    with published(second, "pretrain", keep=2):
        save(second, 30)
        wait_for(lambda: not any("step_000010" in name for name in stored()))
        save(second, 40)
        old = second / "checkpoints" / "step_000020"
        (old / "manifest.json").unlink()  # first, as training does: a pass may look in between
        shutil.rmtree(old)
    assert {name.split("/")[1] for name in stored() if "/" in name} == {"step_000030", "step_000040"}
    changes = [(m, p.removeprefix("/store/runs/a/checkpoints/")) for m, p in s3.requests if "step_" in p]
    changes = [change for change in changes if change[0] in ("PUT", "DELETE")]
    assert changes == [
        ("PUT", "step_000030/state/a.bin"),
        ("PUT", "step_000030/manifest.json"),
        ("DELETE", "step_000010/manifest.json"),
        ("DELETE", "step_000010/state/a.bin"),
        ("PUT", "step_000040/state/a.bin"),
        ("PUT", "step_000040/manifest.json"),
        ("DELETE", "step_000020/manifest.json"),
        ("DELETE", "step_000020/state/a.bin"),
    ]


def test_the_manifest_of_a_folder_goes_last_and_what_is_half_uploaded_does_not_count(
    s3: S3Server, machine: Callable[[int], Path]
) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first)
        write_manifest(first, {"steps": 3})
        time.sleep(0.2)
        (first / "events.jsonl").write_text("{}\n{}\n")
        assert "manifest.json" not in stored()
    assert requests(s3, "PUT")[-2:] == ["events.jsonl", "manifest.json"]
    fsspec.filesystem("s3").rm("store/runs/a/manifest.json")
    fsspec.filesystem("s3").pipe("store/runs/a/checkpoints/step_000090/state/a.bin", b"no manifest")
    second = machine(2)
    refresh(second)
    fetch_checkpoint(second)
    assert not (second / "checkpoints").exists()


def test_a_log_goes_with_each_checkpoint_and_at_the_end(s3: S3Server, machine: Callable[[int], Path]) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first)
        time.sleep(0.2)  # several looks
        assert stored() == set()
        save(first, 10)  # before a checkpoint it is sent, for whoever goes on from there
        wait_for(lambda: "checkpoints/step_000010/manifest.json" in stored())
        assert requests(s3, "PUT")[:2] == ["config.yaml", "events.jsonl"]
        (first / "events.jsonl").write_text("{}\n{}\n")
        time.sleep(0.2)
        assert requests(s3, "PUT").count("events.jsonl") == 1
    assert requests(s3, "PUT").count("events.jsonl") == 2


def test_a_damaged_checkpoint_is_passed_over_and_said(
    machine: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first, 10, 20)
    fsspec.filesystem("s3").pipe("store/runs/a/checkpoints/step_000020/state/a.bin", b"cut")
    second = machine(2)
    with published(second, "pretrain"):
        assert [path.name for path in (second / "checkpoints").iterdir()] == ["step_000010"]
        assert (second / "checkpoints" / "step_000010" / "state" / "a.bin").read_bytes() == bytes([10]) * 1000
        (second / "checkpoints" / "step_000010").rename(second / "checkpoints" / "step_000020")  # as if trained anew
    said = capsys.readouterr().err
    assert f"{URL}/checkpoints/step_000020 is damaged: " in said
    assert "its SHA-256 is" in said
    assert "step_000010 is taken." in said
    assert fsspec.filesystem("s3").cat("store/runs/a/checkpoints/step_000020/state/a.bin") == bytes([10]) * 1000


def test_a_download_that_ends_early_is_no_file(s3: S3Server, machine: Callable[[int], Path]) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first, 10)
    second = machine(2)
    with s3.fault(cut="a.bin"), pytest.raises(DataError, match=f"^{URL} cannot be fetched: "):
        fetch_checkpoint(second)
    assert not [path for path in second.rglob("*") if path.is_file()]
    fetch_checkpoint(second)
    assert (second / "checkpoints" / "step_000010" / "manifest.json").is_file()


def test_an_upload_that_did_not_arrive_whole_is_sent_again_before_its_manifest(
    s3: S3Server, machine: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        with s3.fault(cut_put="a.bin"):
            save(first, 10)
            wait_for(lambda: requests(s3, "PUT").count("checkpoints/step_000010/state/a.bin") > 1)
            assert "checkpoints/step_000010/manifest.json" not in stored()
        wait_for(lambda: "checkpoints/step_000010/manifest.json" in stored())
    assert "arrived with 500 of its 1,000 bytes. It goes on here, and is tried again." in capsys.readouterr().err
    assert fsspec.filesystem("s3").cat("store/runs/a/checkpoints/step_000010/state/a.bin") == bytes([10]) * 1000


def test_expired_credentials_are_said_once_and_what_was_not_published_is_published_by_the_next(
    s3: S3Server, machine: Callable[[int], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "AWAY_S", 2)
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first)
        with s3.fault(expired=True):
            save(first, 10)
            wait_for(lambda: len(requests(s3, "PUT")) > 5)
        wait_for(lambda: "checkpoints/step_000010/manifest.json" in stored())
    said = capsys.readouterr().err.splitlines()
    refused = "the credentials have expired. Renew them in the environment and rerun the same command."
    assert said == [
        f"{URL} cannot be published: {refused} It goes on here, and is tried again.",
        f"{URL} is being published again.",
    ]
    with pytest.raises(DataError, match=refused) as error, published(first, "pretrain"):  # noqa: PT012
        save(first, 20)
        s3.expired = True
    assert str(error.value).endswith(KEPT.format(first))
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{URL} cannot be published: {refused} All else is done; the upload is tried again for 0m 02s."]
    s3.heal()
    fsspec.filesystem("s3").rm_file("store/runs/a/.lock")  # it could not be removed, and is of this very process
    s3.requests.clear()
    with published(first, "pretrain"):
        assert (first / "checkpoints" / "step_000020" / "manifest.json").is_file()
    assert requests(s3, "GET") == []  # nothing was replaced by what is in the store
    assert "checkpoints/step_000020/manifest.json" in stored()


def test_what_another_machine_wrote_since_replaces_what_was_not_published(
    s3: S3Server,
    machine: Callable[[int], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "AWAY_S", 0)
    first = machine(1)
    with pytest.raises(DataError, match="expired"), published(first, "pretrain"):  # noqa: PT012
        whole_run(first, 10)
        wait_for(lambda: "checkpoints/step_000010/manifest.json" in stored())
        s3.expired = True
        save(first, 30)
        write_manifest(first, {"steps": 30})
    s3.heal()
    fsspec.filesystem("s3").rm_file("store/runs/a/.lock")
    second = machine(2)
    with published(second, "pretrain"):
        (second / "events.jsonl").write_text("{}\n{}\n")
        save(second, 20)
    machine(1)
    with published(first, "pretrain"):
        assert (first / "events.jsonl").read_text() == "{}\n{}\n"
        here = {path.name for path in (first / "checkpoints").iterdir()}
        assert here - {"step_000010"} == {"step_000020"}  # the first equals that of the store, if its answer still came
        assert not (first / "manifest.json").exists()
    assert f"{URL} was written elsewhere since: it replaces what is in {first}." in capsys.readouterr().err


def test_what_was_never_in_the_store_stays_when_another_machine_has_written_there(
    machine: Callable[[int], Path],
) -> None:
    first, scores = machine(1), Path("evaluation", "tatoeba", "scores.json")
    with published(first, "pretrain"):
        whole_run(first)
        for name in ("running", "failed", "gone"):
            (first / name).mkdir()
            (first / name / "log").write_text("old")
    (first / scores).parent.mkdir(parents=True)
    (first / scores).write_text("[]")
    second = machine(2)
    with published(second, "pretrain"):
        (second / "events.jsonl").write_text("{}\n{}\n")
        (second / "running" / "log").write_text("as old")
        (second / "gone" / "log").unlink()
    first = machine(1)
    with published(first / "failed", "evaluate"):
        (first / "failed" / "log").write_text("published apart")
    (first / "failed" / "log").write_text("new, not published")
    with hold(first / "running", "evaluate"):
        (first / "running" / "log").write_text("new")
        with published(first, "pretrain"):
            assert (first / scores).read_text() == "[]"
            assert (first / "running" / "log").read_text() == "new"
            assert (first / "failed" / "log").read_text() == "new, not published"
            assert (first / "events.jsonl").read_text() == "{}\n{}\n"
            assert not (first / "gone" / "log").exists()
    assert scores.as_posix() in stored()
    assert fsspec.filesystem("s3").cat("store/runs/a/failed/log") == b"new, not published"


def test_a_reader_does_not_bring_back_the_manifest_of_a_run_that_is_open_again(machine: Callable[[int], Path]) -> None:
    folder = machine(1)
    with published(folder, "pretrain"):
        whole_run(folder)
        write_manifest(folder, {"steps": 3})
    with hold(folder, "pretrain"), published(folder, "pretrain"):
        (folder / "manifest.json").unlink()
        opened(URL)
        assert not (folder / "manifest.json").exists()
    refresh(folder)
    assert not (folder / "manifest.json").exists()


def test_a_finished_folder_is_uploaded_its_manifest_last_and_brings_nothing_here(
    s3: S3Server, machine: Callable[[int], Path]
) -> None:
    first = machine(1)
    first.mkdir(parents=True)
    fsspec.filesystem("s3").pipe("store/runs/a/events.jsonl", b"of an upload that was killed")
    names = whole_run(first)
    write_manifest(first, {"files": hash_files(first)})
    upload(first, "prepare")
    assert stored() == names | {"manifest.json"}
    assert requests(s3, "PUT")[1:] == ["config.yaml", "events.jsonl", "manifest.json"]
    refresh(first)
    assert requests(s3, "GET") == []
    second = machine(2)
    fetch_listed(second)
    assert (second / "events.jsonl").read_text() == "{}\n"


def test_a_reader_sees_what_is_new_and_brings_no_checkpoint(s3: S3Server, machine: Callable[[int], Path]) -> None:
    first = machine(1)
    with published(first, "pretrain"):
        whole_run(first, 10)
    machine(2)
    assert (opened(URL) / "events.jsonl").read_text() == "{}\n"
    assert not (opened(Path(URL)) / "checkpoints").exists()
    assert requests(s3, "GET").count("events.jsonl") == 1
    first = machine(1)
    with published(first, "pretrain"):
        (first / "events.jsonl").write_text("{}\n{}\n")
        (first / "config.yaml").unlink()
    second = machine(2)
    assert (opened(URL) / "events.jsonl").read_text() == "{}\n{}\n"
    assert not (second / "config.yaml").exists()
    with pytest.raises(ConfigError, match=r"^There is nothing at s3://store/runs/b\.$"):
        opened("s3://store/runs/b")


def test_a_cluster_needs_a_folder_for_mirrors_that_its_nodes_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    check_mirror(local_folder(URL), 1)
    check_mirror(tmp_path / "runs", 2)
    cache = tmp_path / ".cache" / "xalign-ray"
    said = rf"^The cluster has 2 nodes, and {URL} is mirrored in {cache} of this one\. Set XALIGN_CACHE, on all of them"
    with pytest.raises(ConfigError, match=said):
        check_mirror(local_folder(URL), 2)
    monkeypatch.setenv(CACHE, str(tmp_path))
    check_mirror(local_folder(URL), 2)


def test_what_cannot_be_a_url_is_refused_with_what_can_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^--out is a URL: .* with --set output=s3://store/runs/a\.$"):
        run_study("quickstart", Path(URL))
    with pytest.raises(ConfigError, match=rf"^model\.init_from: {URL} is a URL; copy the encoder to a folder"):
        check_recipe(load_recipe("tiny/mlm", [f"model.init_from={URL}"]))
    assert not list(tmp_path.iterdir())
