"""Uploads of submitted jobs: the package and what a command names, written and counted before anything is sent."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from xalign_ray.errors import ConfigError
from xalign_ray.verbs.submit import PACKAGE, SHIPPED, code_files, connect, write_upload

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package, in a folder that is not the current one."""
    for name, size in {
        "xalign_ray/cli.py": 10,
        "xalign_ray/recipes/tiny/mlm.yaml": 20,
        "xalign_ray/__pycache__/cli.pyc": 5_000_000,
        "runs/model.safetensors": 90_000_000,
    }.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)  # sparse: the size counts, not the bytes
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "repository" / "xalign_ray"


def write(path: str, text: str) -> Path:
    """A file of the user's, below the current folder or beside it."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def uploaded(tmp_path: Path, package: Path, *words: str) -> tuple[str, dict[str, str], list[str]]:
    """The arguments of the job's command behind its folder, the user's files by their place, and the notes."""
    folder = tmp_path / f"upload-{len(list(tmp_path.iterdir()))}"
    entry, notes = write_upload("pretrain", words, folder, package)
    shutil.rmtree(folder / "xalign_ray")
    return entry, {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*")}, notes


def test_a_recipe_of_ours_takes_the_package_alone(package: Path, tmp_path: Path) -> None:
    entry, notes = write_upload("pretrain", ["tiny/mlm", "--set", "seed=3"], tmp_path / "upload", package)
    assert (entry, notes) == ("exec python -m xalign_ray pretrain tiny/mlm --set seed=3", [])
    files = [path for path in (tmp_path / "upload").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "upload")) for path in files} == {
        "xalign_ray/cli.py",
        "xalign_ray/recipes/tiny/mlm.yaml",
    }


def test_an_own_recipe_takes_what_it_extends_starts_from_and_plugs_in(package: Path, tmp_path: Path) -> None:
    write("recipes/mine.yaml", "extends: [shared, tiny/mlm]\nmodel: {init_from: 'run:recipes/start.yaml'}\n")
    write("recipes/shared.yaml", "plugins: [rows, losses.pull, numpy.linalg]\n")
    write("recipes/start.yaml", "extends: mine\n")  # a circle ends
    write("recipes/other.yaml", "extends: tiny/mlm\n")
    write("rows.py", "A = 1")
    write("losses/__init__.py", "")
    write("losses/pull.py", "B = 2")
    write("losses/.secret.py", "TOKEN = 1")
    write("losses/notes.txt", "not code")
    write("added.py", "C = 3")
    _, files, notes = uploaded(tmp_path, package, "recipes/mine.yaml", "--set", "plugins=[rows, added]")
    own = ["added.py", "losses/__init__.py", "losses/pull.py"]
    own += ["recipes/mine.yaml", "recipes/shared.yaml", "recipes/start.yaml", "rows.py"]
    assert sorted(files) == own
    assert notes == [f"Goes along: {', '.join(own)}."]
    assert (files["rows.py"], files["losses/pull.py"]) == ("A = 1", "B = 2")


def test_files_beside_the_current_folder_keep_their_places(package: Path, tmp_path: Path) -> None:
    study = write("../studies/mine.yaml", "encoders: [{recipe: recipes/a.yaml}, {recipe: tiny/mlm}]\n")
    write("recipes/a.yaml", "extends: ../../base.yaml\nplugins: [rows]\n")
    write("../base.yaml", "extends: tiny/mlm\n")
    write("rows.py", "")
    entry, files, _ = uploaded(tmp_path, package, str(study.resolve()), "--out", "/shared")
    assert entry == "cd here && exec python -m xalign_ray pretrain ../studies/mine.yaml --out /shared"
    assert sorted(files) == ["base.yaml", "here/recipes/a.yaml", "here/rows.py", "studies/mine.yaml"]


@pytest.mark.parametrize(
    ("words", "expected", "file"),
    [
        ("link.yaml", "../common/mine.yaml", "common/mine.yaml"),
        ("folder/mine.yaml", "../common/mine.yaml", "common/mine.yaml"),
        ("{home}/own.yaml", "own.yaml", "own.yaml"),
        ("a --on={here}/own.yaml", "a --on=own.yaml", "own.yaml"),
        ("a --set model.init_from=run:{here}/own.yaml", "a --set model.init_from=run:own.yaml", "own.yaml"),
        ("a=b.yaml", "a=b.yaml", "a=b.yaml"),
        ("tiny/weam --set model.init_from=run:own.yaml", "tiny/weam --set model.init_from=run:own.yaml", "own.yaml"),
    ],
)
def test_files_are_named_by_their_place_in_the_upload(
    package: Path, tmp_path: Path, words: str, expected: str, file: str
) -> None:
    here = Path.cwd()
    write("../common/mine.yaml", "extends: tiny/mlm\n")
    write("own.yaml", "extends: tiny/mlm\n")
    write("a=b.yaml", "extends: tiny/mlm\n")
    Path("link.yaml").symlink_to("../common/mine.yaml")
    Path("folder").symlink_to("../common")
    (here.parent / "home").symlink_to("here")  # as the home folders of clusters are
    given = words.format(here=here, home=here.parent / "home").split()
    entry, files, _ = uploaded(tmp_path, package, *given)
    assert entry.endswith(f"exec python -m xalign_ray pretrain {expected}")
    assert [*files] == [file]


def test_a_task_of_ones_own_goes_along_wherever_it_is_named(package: Path, tmp_path: Path) -> None:
    for name in ("mood", "length", "tone"):
        write(f"own_{name}/task.py", "TASK = None\n")
    write("mine.yaml", "finetunings: [{task: own_mood.task}, {task: pos}]\nevaluations: [{task: own_length.task}]\n")
    _, files, _ = uploaded(tmp_path, package, "mine.yaml", "--out", "/shared")
    assert sorted(files) == ["mine.yaml", "own_length/task.py", "own_mood/task.py"]
    for words in (["--task", "own_tone.task"], ["--task=own_tone.task"]):
        assert [*uploaded(tmp_path, package, "runs/x", *words)[1]] == ["own_tone/task.py"]


def test_credentials_stay_here(package: Path, tmp_path: Path) -> None:
    write("mine.yaml", "extends: tiny/mlm\ntrack:\n  mlflow: http://ann:s3cret@host:5000\n")
    words = ["mine.yaml", "--set", "track.mlflow='postgresql://ann:s3cret@db/m'"]
    entry, files, notes = uploaded(tmp_path, package, *words)
    assert "ann@db/m" in entry
    assert files["mine.yaml"] == "extends: tiny/mlm\ntrack:\n  mlflow: http://host:5000\n"
    assert any("The credentials in http://host:5000 do not go along" in note for note in notes)
    assert any("give them by PGPASSWORD in the environment, or ~/.pgpass." in note for note in notes)
    assert "s3cret" not in "".join([entry, *notes])


def test_addresses_of_data_keep_their_query(package: Path, tmp_path: Path) -> None:
    words = ["M", "--pairs", "https://host/pairs.tsv?download=true", "--set", "data.text=[{paths: [https://h/a?x=1]}]"]
    entry, files, _ = uploaded(tmp_path, package, *words)
    assert (entry, files) == (shlex.join(["exec", "python", "-m", "xalign_ray", "pretrain", *words]), {})


def test_a_broken_yaml_file_is_named(package: Path, tmp_path: Path) -> None:
    write("torn.yaml", "H100: [2")
    with pytest.raises(ConfigError, match=r"torn\.yaml is not YAML: "):
        uploaded(tmp_path, package, "torn.yaml")


def test_dot_files_foreign_kinds_and_links_that_lead_out_stay_at_home(package: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("TOKEN = 1")
    for name in (".env", ".secrets/key.py", "recipes/.mine.yaml", "keys.pem", "jobs.sqlite"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("s3cret")
    (package / "link.py").symlink_to(secret)
    (package / "out").symlink_to(tmp_path)
    (package / "inside.py").symlink_to(package / "cli.py")
    assert [str(file) for file in code_files(package)] == ["cli.py", "inside.py", "recipes/tiny/mlm.yaml"]


def test_ray_job_submit_from_here_ships_our_code_and_no_dot_file(tmp_path: Path) -> None:
    """By .rayignore, as Ray itself reads it: `--working-dir .` would ship a .env otherwise."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    shutil.copyfile(ROOT / ".rayignore", tmp_path / ".rayignore")
    for name in ("xalign_ray/cli.py", "xalign_ray/sources/.env", "jobs/pretrain.py", ".env", "notes/key.pem", "a.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    shipped: list[Path] = []
    _dir_travel(tmp_path, [_get_excludes(tmp_path, [])], shipped.append, include_gitignore=True)
    found = sorted(str(path.relative_to(tmp_path)) for path in shipped if path.is_file())
    assert found == ["jobs/pretrain.py", "xalign_ray/cli.py"]


def test_an_upload_above_50_mb_is_refused_with_its_five_largest_files(package: Path) -> None:
    for number in range(1, 8):
        with (package / f"dump-{number}.tsv").open("wb") as file:
            file.truncate(number * 2_000_000)
    with pytest.raises(ConfigError) as caught:
        write_upload("pretrain", [], package.parent / "upload", package)
    assert str(caught.value) == (
        "The upload is 56.0 MB, more than 50 MB. The largest files: xalign_ray/dump-7.tsv (14.0 MB), "
        "xalign_ray/dump-6.tsv (12.0 MB), xalign_ray/dump-5.tsv (10.0 MB), xalign_ray/dump-4.tsv (8.0 MB), "
        "xalign_ray/dump-3.tsv (6.0 MB). Move them out of the code: data and models go to storage that all nodes see."
    )


def test_this_package_can_be_submitted_and_every_kind_of_its_files_is_shipped() -> None:
    files = code_files(PACKAGE)
    assert sum((PACKAGE / path).stat().st_size for path in files) < 5_000_000
    assert {Path("recipes/tiny/methods.arms.yaml"), Path("py.typed")} <= {*files}
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["xalign_ray"]
    assert {Path("x" + pattern).suffix for pattern in patterns} <= set(SHIPPED)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("prtrain tiny/mlm", "no verb that runs on a cluster. Did you mean 'pretrain'? Those are prepare, pretrain,"),
        ("pretrain tiny/mlm --set train.max_step=3", "unknown key 'train.max_step'. Did you mean 'train.max_steps'?"),
        ("pretrain tiny/mlm --st a=3", "No such option: --st"),
        ("stop", "xalign submit stop takes the name of one job; `ray job list` lists them."),
        (
            "--address http://127.0.0.1:1 prepare tiny/mlm --set output=/s",
            "No Ray dashboard answers at http://127.0.0.1:1. Give its ",
        ),
    ],
)
def test_a_mistake_is_said_before_a_cluster_is_asked(words: str, said: str) -> None:
    command = [sys.executable, "-m", "xalign_ray", "submit", *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("status", "answer", "proxied", "said"),
    [
        (
            503,
            b"",
            "",
            r"^What answers at {} is no Ray dashboard \(503 Server Error.*\)\. Give its ",
        ),
        (404, b"", "", r"^What answers at {} is no Ray dashboard \(Version check returned 404\)\. "),
        (200, b"<html>", "", r"^What answers at {} is no Ray dashboard \("),
        (200, b"{}", "", r"^What answers at {} is no Ray dashboard \('ray_version'\)\. "),
        (502, b"", "head", r"^What answers at {} .* The environment names a proxy, which was asked; NO_PROXY=head "),
        (
            403,
            b"",
            "head",
            r"^The cluster at {} refuses us: .* The environment names a proxy, which was asked; NO_PROXY=head ",
        ),
    ],
)
def test_what_is_no_dashboard_is_said(
    monkeypatch: pytest.MonkeyPatch, status: int, answer: bytes, proxied: str, said: str
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        if proxied:
            monkeypatch.setenv("http_proxy", address)
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            address = f"http://{proxied}:8265"
        with pytest.raises(ConfigError, match=said.replace("{}", address, 1)):
            connect(address)
        server.shutdown()
