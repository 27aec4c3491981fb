"""Hub models that the cache holds whole are opened without the hub; what is missing is said, not waited for."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from huggingface_hub import constants
from transformers import AutoModel

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.config.identity import inputs_of, run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.config.schema import ModelConfig
from xalign_ray.continuing.methods import look_at_encoder
from xalign_ray.errors import DataError
from xalign_ray.models import hub
from xalign_ray.models.backbone import backbone
from xalign_ray.models.hub import revision_of
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import open_model
from xalign_ray.pretraining import with_commits
from xalign_ray.work.artifacts import write_manifest

A, B = "a" * 40, "b" * 40
UNREACHABLE = "acme/tiny is no folder, and http://127.0.0.1:9 cannot be reached"
OFFLINE = "is no folder and not in the hub's cache, and HF_HUB_OFFLINE is set"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a hub that is a port where nobody listens."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.ask_hub.cache_clear()
    yield tmp_path / "hub" / "models--acme--tiny"
    hub.ask_hub.cache_clear()


@pytest.fixture
def snapshot(cache: Path) -> Path:
    """The one commit of acme/tiny."""
    make_bert_in(cache / "snapshots" / A, ["one"])
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(A)
    return cache / "snapshots" / A


@pytest.mark.parametrize("is_known", [False, True])
def test_a_cached_model_is_opened_without_the_hub(
    snapshot: Path, capfd: pytest.CaptureFixture[str], is_known: bool
) -> None:
    """The hub may have said before that there is no modules.json, which the cache remembers."""
    if is_known:
        (none := snapshot.parents[1] / ".no_exist" / A).mkdir(parents=True)
        (none / "modules.json").touch()
    opened = open_encoder("acme/tiny")
    assert (opened.commit, opened.sentences.pooling, opened.sentences.prompt) == (A, None, "")
    assert Encoder.open(open_encoder("acme/tiny"), "cpu").inputs.encoder == "acme/tiny"
    said = capfd.readouterr().err
    unanswered = "acme/tiny: modules.json is not in the cache, and the hub does not answer; none is read."
    assert (unanswered in said) is not is_known
    assert "Retry" not in said


def test_a_module_that_training_would_leave_behind_is_refused_of_a_hub_model_too(snapshot: Path) -> None:
    modules = '[{"path": "", "type": "x.models.Transformer"}, {"path": "2_Dense", "type": "x.models.Dense"}]'
    (snapshot / "modules.json").write_text(modules)
    with pytest.raises(DataError, match="acme/tiny has a module Dense, whose weights would not be trained"):
        look_at_encoder("acme/tiny")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("model.safetensors", UNREACHABLE),
        ("tokenizer.json", "holds no tokenizer: none of tokenizer.json, vocab.txt"),
        ("", UNREACHABLE),
    ],
)
def test_what_the_cache_lacks_of_a_model_is_said(
    snapshot: Path, capfd: pytest.CaptureFixture[str], missing: str, said: str
) -> None:
    (snapshot / missing).unlink() if missing else shutil.rmtree(snapshot)
    with pytest.raises(DataError, match=said):
        Encoder.open(open_encoder("acme/tiny"), "cpu")
    assert "Retry" not in capfd.readouterr().err


def test_a_revision_is_part_of_the_name_and_of_the_fingerprint(tmp_path: Path) -> None:
    assert revision_of("a/b@fd1525a") == ("a/b", {"revision": "fd1525a"})
    assert revision_of("a/b") == ("a/b", {})
    folder = tmp_path / "run@3"
    folder.mkdir()
    assert revision_of(str(folder)) == (str(folder), {})
    prints = {
        run_fingerprint(load_recipe("tiny/mlm", [f"model.init_from=a/b{revision}"]).config, "data")
        for revision in ("", "@one", "@two")
    }
    assert len(prints) == 3


def test_each_revision_in_the_cache_opens_its_own_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for commit, seed, pooling in ((A, 16, "mean"), (B, 32, "cls")):
        snapshot = cache / "snapshots" / commit
        make_bert_in(snapshot, ["one"])
        config = snapshot / "config.json"
        config.write_text(config.read_text().replace('"model_type"', f'"xalign_seed": {seed}, "model_type"'))
        (snapshot / "1_Pooling").mkdir()
        (snapshot / "1_Pooling" / "config.json").write_text(f'{{"pooling_mode": "{pooling}"}}')
        (snapshot / "modules.json").write_text('[{"path": "1_Pooling", "type": "x.Pooling"}]')
        name = f"acme/tiny@{commit}"
        assert Encoder.open(open_encoder(name), "cpu").model.config.xalign_seed == seed
        assert backbone(ModelConfig(init_from=name), 6, 8, 0)[1]["xalign_seed"] == seed
        looked_at = look_at_encoder(name)
        assert (looked_at.name, looked_at.has_head, looked_at.sentences.pooling) == (name, True, pooling)
    with pytest.raises(DataError, match=f"acme/tiny@cccc.* {OFFLINE}"):
        look_at_encoder(f"acme/tiny@{'c' * 40}")


def test_a_hub_model_is_a_commit_and_an_interrupted_run_goes_on_with_its_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for commit in (A, B):
        make_bert_in(cache / "snapshots" / commit, ["one"])
    (cache / "refs").mkdir()
    monkeypatch.chdir(tmp_path)
    tokenizer = "data.tokenizer={kind: folder, path: acme/tiny}"

    def begin(main: str, does_begin: bool = False, *more: str) -> tuple[str | None, str, str]:
        (cache / "refs" / "main").write_text(main)
        recipe = with_commits(load_recipe("tiny/mlm", ["model.init_from=acme/tiny", tokenizer, "output=runs", *more]))
        saved = describe_saved(recipe, inputs_of(recipe.config, "data"))
        if does_begin:
            folder = Path("runs", f"tiny-mlm-{saved['fingerprint'][:8]}")
            folder.mkdir(parents=True)
            write_saved(folder, saved)
        return recipe.config.model.init_from, recipe.config.data.tokenizer.path, saved["fingerprint"]  # type: ignore[union-attr]

    first, second = begin(A), begin(B)
    assert first[:2] == (f"acme/tiny@{A}",) * 2
    assert second[:2] == (f"acme/tiny@{B}",) * 2
    assert first[2] != second[2], "two commits of one name are two runs"
    assert begin(A, True) == first
    assert begin(B) == first, "an interrupted run goes on"
    assert begin(B, False, "seed=7")[0] == second[0], "another run begins with the newest"
    (run,) = (tmp_path / "runs").iterdir()
    write_manifest(run, {"recipe": "tiny/mlm", "fingerprint": first[2], "steps": 1})
    assert begin(B) == second, "a finished run is not gone on with"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("runs/export", r"runs/export is not a folder; give an export folder or a hub id such as bert-base-cased\.$"),
        ("a/b/c", "a/b/c is not a folder; give an export folder"),
        ("runs/e5-smal", r"Did you mean 'runs/e5-small'\?"),
        ("acme/tiny", rf"{UNREACHABLE}\. Without a network, copy"),
    ],
)
def test_a_path_that_is_missing_is_refused_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "runs" / "e5-small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        open_model(open_encoder(name), AutoModel)


class Hub(BaseHTTPRequestHandler):
    """A hub that knows models of `there`, is slow for those of `slow`, and refuses all others."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        """Answers with a status alone."""
        self.asked.append(self.path)
        if "slow" in self.path:
            time.sleep(1)
        self.send_response(200 if self.path.startswith("/there/") else 404)
        self.send_header("X-Repo-Commit", "c" * 40)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the base class writes to stderr."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{made.server_port}")
    monkeypatch.setattr(Hub, "asked", [])
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.usefixtures("server")
def test_the_hub_is_asked_for_the_commit_of_what_the_cache_lacks(tmp_path: Path) -> None:
    assert hub.at_commit("there/known") == f"there/known@{'c' * 40}"
    assert hub.at_commit("lost/unknown") == "lost/unknown"
    assert hub.at_commit("run:tiny/mlm") == "run:tiny/mlm"
    assert hub.at_commit(str(tmp_path)) == str(tmp_path)


def test_every_caller_asks_the_hub_by_one_request(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.2)
    assert [hub.ask_hub(name)[0] for name in ("there/x@v1", "gone/x", "slow/x")] == [200, 404, 408]
    hub.check_reachable("there/x@v1")
    hub.check_reachable("slow/x")  # left to the hub's own client, which is patient
    with pytest.raises(DataError, match=r"gone/x is no folder, and the hub has no such model for you \(HTTP \d+\)"):
        hub.check_reachable("gone/x")
    paths = ["/there/x/resolve/v1/config.json", "/gone/x/resolve/main/config.json", "/slow/x/resolve/main/config.json"]
    assert Hub.asked == paths
    server.shutdown()
    server.server_close()
    hub.ask_hub.cache_clear()
    with pytest.raises(DataError, match=r"gone/x is no folder, and http://.* cannot be reached\. Without a network"):
        hub.check_reachable("gone/x")
