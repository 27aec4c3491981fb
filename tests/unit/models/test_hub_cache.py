"""Hub models that the cache holds whole are opened without the hub; what is missing is said, not waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from huggingface_hub import constants

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import DataError
from xalign_ray.models import hub
from xalign_ray.models.hub import revision_of
from xalign_ray.work.artifacts import write_manifest

OPEN = """
from transformers import AutoModel
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
files = open_encoder("acme/tiny").sentences
print(files.pooling, repr(files.prompt), Encoder.open("acme/tiny").inputs.encoder)
"""


def run(home: Path, code: str) -> subprocess.CompletedProcess[str]:
    """In a process whose cache is in `home`, and whose hub is a port that nobody listens at."""
    environment = os.environ | {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache that holds acme/tiny."""
    model = tmp_path / "hub" / "models--acme--tiny"
    make_bert_in(model / "snapshots" / "abc", ["one"])
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    return tmp_path


def test_a_cached_model_is_opened_without_the_hub(home: Path) -> None:
    began = time.monotonic()
    done = run(home, OPEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "None '' acme/tiny"
    assert "acme/tiny: modules.json is not in the cache, and the hub does not answer; none is read." in done.stderr
    assert "Retry" not in done.stderr
    assert time.monotonic() - began < 60  # ten seconds where nobody else computes, most of them imports


def test_files_that_the_hub_lacks_are_known_to_be_missing(home: Path) -> None:
    none = home / "hub" / "models--acme--tiny" / ".no_exist" / "abc"
    none.mkdir(parents=True)
    (none / "modules.json").touch()
    done = run(home, OPEN)
    assert done.stdout.splitlines()[-1] == "None '' acme/tiny"
    assert "does not answer" not in done.stderr


def test_a_module_that_training_would_leave_behind_is_refused_of_a_hub_model_too(home: Path) -> None:
    modules = '[{"path": "", "type": "x.models.Transformer"}, {"path": "2_Dense", "type": "x.models.Dense"}]'
    (home / "hub" / "models--acme--tiny" / "snapshots" / "abc" / "modules.json").write_text(modules)
    done = run(
        home,
        "from xalign_ray.models.sentence_files import read_sentence_files as read\nread('acme/tiny').check_trained()",
    )
    assert "acme/tiny has a module Dense, whose weights would not be trained with the encoder" in done.stderr


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("model.safetensors", "acme/tiny is no folder, and http://127.0.0.1:9 cannot be reached"),
        ("tokenizer.json", "holds no tokenizer: none of tokenizer.json, vocab.txt"),
        ("", "acme/tiny is no folder, and http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_the_cache_lacks_of_a_model_is_said(home: Path, missing: str, said: str) -> None:
    snapshot = home / "hub" / "models--acme--tiny" / "snapshots" / "abc"
    (snapshot / missing).unlink() if missing else shutil.rmtree(snapshot)
    done = run(home, OPEN)
    assert said in done.stderr.splitlines()[-1]
    assert "Retry" not in done.stderr


def test_a_revision_is_part_of_the_name_and_of_the_fingerprint(tmp_path: Path) -> None:
    assert revision_of("intfloat/multilingual-e5-small@fd1525a") == (
        "intfloat/multilingual-e5-small",
        {"revision": "fd1525a"},
    )
    assert revision_of("intfloat/multilingual-e5-small") == ("intfloat/multilingual-e5-small", {})
    folder = tmp_path / "run@3"
    folder.mkdir()
    assert revision_of(str(folder)) == (str(folder), {})
    prints = {
        run_fingerprint(load_recipe("tiny/mlm", [f"model.init_from=a/b{revision}"]).config, "data")
        for revision in ("", "@one", "@two")
    }
    assert len(prints) == 3


def test_each_revision_in_the_cache_opens_its_own_files(tmp_path: Path) -> None:
    for commit, width in (("a" * 40, 16), ("b" * 40, 32)):
        make_bert_in(tmp_path / "hub" / "models--acme--tiny" / "snapshots" / commit, ["one"])
        config = tmp_path / "hub" / "models--acme--tiny" / "snapshots" / commit / "config.json"
        config.write_text(config.read_text().replace('"model_type"', f'"xalign_seed": {width}, "model_type"'))
    code = (
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'\n"
        "from xalign_ray.config.schema import ModelConfig\n"
        "from xalign_ray.models.backbone import backbone\n"
        "from xalign_ray.models.inference import Encoder\n"
        "for commit in ('a' * 40, 'b' * 40):\n"
        "    name = f'acme/tiny@{commit}'\n"
        "    seed = Encoder.open(name).model.config.xalign_seed\n"
        "    print(seed, backbone(ModelConfig(init_from=name), 6, 8, 0)[1]['xalign_seed'])\n"
    )
    done = run(tmp_path, code)
    assert done.stdout.splitlines()[-2:] == ["16 16", "32 32"], done.stderr
    done = run(tmp_path, code.replace("('a' * 40, 'b' * 40)", "('c' * 40,)"))
    assert "acme/tiny@cccc" in done.stderr.splitlines()[-1]
    assert "not in the hub's cache, and HF_HUB_OFFLINE is set" in done.stderr.splitlines()[-1]


COMMITS = """
import sys
from pathlib import Path
from xalign_ray.config.identity import inputs_of
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import describe_saved, write_saved
from xalign_ray.pretraining import with_commits
settings = ["model.init_from=acme/tiny", "data.tokenizer={kind: folder, path: acme/tiny}", "output=runs", *sys.argv[2:]]
recipe = with_commits(load_recipe("tiny/mlm", settings))
saved = describe_saved(recipe, inputs_of(recipe.config, "data"))
if sys.argv[1] == "begin":
    folder = Path("runs", f"tiny-mlm-{saved['fingerprint'][:8]}")
    folder.mkdir(parents=True)
    write_saved(folder, saved)
print(recipe.config.model.init_from, recipe.config.data.tokenizer.path, saved["fingerprint"])
"""


def test_a_hub_model_is_a_commit_and_an_interrupted_run_goes_on_with_its_own(tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--acme--tiny"
    for commit in ("a" * 40, "b" * 40):
        make_bert_in(model / "snapshots" / commit, ["one"])
    (model / "refs").mkdir()

    def begin(main: str, *arguments: str) -> list[str]:
        (model / "refs" / "main").write_text(main * 40)
        environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", COMMITS, *arguments]
        return subprocess.check_output(command, env=environment, cwd=tmp_path, text=True).split()

    first = begin("a", "look")
    assert first[:2] == [f"acme/tiny@{'a' * 40}"] * 2
    second = begin("b", "look")
    assert second[:2] == [f"acme/tiny@{'b' * 40}"] * 2
    assert first[2] != second[2], "two commits of one name are two runs"
    assert begin("a", "begin") == first
    assert begin("b", "look") == first, "an interrupted run goes on"
    assert begin("b", "look", "seed=7")[0] == second[0], "another run begins with the newest"
    (run,) = (tmp_path / "runs").iterdir()
    write_manifest(run, {"recipe": "tiny/mlm", "fingerprint": first[2], "steps": 1})
    assert begin("b", "look") == second, "a finished run is not gone on with"


def test_the_hub_is_asked_for_the_commit_of_what_the_cache_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert hub.at_commit("there/known") == f"there/known@{'c' * 40}"
    assert hub.at_commit("lost/unknown") == "lost/unknown"
    assert hub.at_commit("run:tiny/mlm") == "run:tiny/mlm"
    assert hub.at_commit(str(tmp_path)) == str(tmp_path)
    server.shutdown()


def test_continue_looks_at_the_revision_that_is_named(tmp_path: Path) -> None:
    for commit, pooling in (("a" * 40, "mean"), ("b" * 40, "cls")):
        snapshot = tmp_path / "hub" / "models--acme--tiny" / "snapshots" / commit
        make_bert_in(snapshot, ["one"])
        (snapshot / "1_Pooling").mkdir()
        (snapshot / "1_Pooling" / "config.json").write_text(f'{{"pooling_mode": "{pooling}"}}')
        (snapshot / "modules.json").write_text('[{"path": "1_Pooling", "type": "x.Pooling"}]')
    code = (
        "import os; os.environ['HF_HUB_OFFLINE'] = '1'\n"
        "from xalign_ray.continuing.methods import look_at_encoder\n"
        "for commit in ('a' * 40, 'b' * 40):\n"
        "    found = look_at_encoder(f'acme/tiny@{commit}')\n"
        "    print(found.name == f'acme/tiny@{commit}', found.has_head, found.sentences.pooling)\n"
    )
    done = run(tmp_path, code)
    assert done.stdout.splitlines() == ["True True mean", "True True cls"], done.stderr
    missing = run(tmp_path, code.replace("('a' * 40, 'b' * 40)", "('c' * 40,)"))
    assert "is no folder and not in the hub's cache, and HF_HUB_OFFLINE is set" in missing.stderr.splitlines()[-1]


MISSING = {
    "runs/export": "runs/export is not a folder; give an export folder or a hub id such as bert-base-cased.",
    "a/b/c": "a/b/c is not a folder; give an export folder",
    "runs/e5-smal": "Did you mean 'runs/e5-small'?",
    "acme/nothing": "acme/nothing is no folder, and http://127.0.0.1:9 cannot be reached. Without a network, copy",
}


def test_a_path_that_is_missing_is_refused_without_the_hub(tmp_path: Path) -> None:
    (tmp_path / "runs" / "e5-small").mkdir(parents=True)
    code = (
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "from transformers import AutoModel\n"
        "from xalign_ray.errors import DataError\n"
        "from xalign_ray.models.open_folder import open_model\n"
        f"for name in {list(MISSING)}:\n"
        "    try:\n"
        "        open_model(name, AutoModel)\n"
        "    except DataError as error:\n"
        "        print(error)\n"
    )
    done = run(tmp_path, code)
    assert all(words in line for words, line in zip(MISSING.values(), done.stdout.splitlines(), strict=True))
    assert "Retry" not in done.stderr


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


def test_every_caller_asks_the_hub_by_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hub, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.2)
    hub._ask_hub.cache_clear()
    try:
        assert [hub.hub_status(name) for name in ("there/x@v1", "gone/x", "slow/x")] == [200, 404, 408]
        hub.check_reachable("there/x@v1")
        hub.check_reachable("slow/x")  # left to the hub's own client, which is patient
        with pytest.raises(DataError, match=r"gone/x is no folder, and the hub has no such model for you \(HTTP \d+\)"):
            hub.check_reachable("gone/x")
    finally:
        server.shutdown()
        server.server_close()
    paths = ["/there/x/resolve/v1/config.json", "/gone/x/resolve/main/config.json", "/slow/x/resolve/main/config.json"]
    assert Hub.asked == paths
    hub._ask_hub.cache_clear()
    with pytest.raises(DataError, match=r"gone/x is no folder, and http://.* cannot be reached\. Without a network"):
        hub.check_reachable("gone/x")
    hub._ask_hub.cache_clear()
