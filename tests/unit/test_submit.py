"""What a submission would upload: the code and nothing else, counted before anything is sent."""

from __future__ import annotations

import importlib.util
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from xalign_ray.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def submit() -> ModuleType:
    """The script as a module: jobs/ is no package."""
    spec = importlib.util.spec_from_file_location("submit", ROOT / "jobs" / "submit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, size in {
        "xalign_ray/cli.py": 10,
        "xalign_ray/recipes/tiny/mlm.yaml": 20,
        "xalign_ray/__pycache__/cli.pyc": 5_000_000,
        "jobs/pretrain.py": 5,
        "runs/model.safetensors": 90_000_000,
        ".gitignore": 3,
    }.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)  # sparse: the size counts, not the bytes
    return tmp_path / "repository"


def test_only_the_package_and_the_jobs_are_taken(submit: ModuleType, repository: Path, tmp_path: Path) -> None:
    files, left_out = submit.find_code(repository)
    assert left_out == []
    assert sorted(map(str, files)) == ["jobs/pretrain.py", "xalign_ray/cli.py", "xalign_ray/recipes/tiny/mlm.yaml"]
    assert submit.check_size(repository, files) == 35
    submit.copy_code(repository, files, tmp_path / "upload")
    copied = [path for path in (tmp_path / "upload").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "upload") for path in copied) == sorted(files)


def test_dot_files_foreign_kinds_and_links_that_lead_out_stay_at_home(
    submit: ModuleType, repository: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("TOKEN = 1")
    package = repository / "xalign_ray"
    for name in (".env", ".secrets/key.py", "recipes/.mine.yaml", "keys.pem", "jobs.sqlite"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("s3cret")
    (package / "link.py").symlink_to(secret)
    (package / "out").symlink_to(tmp_path)
    (package / "inside.py").symlink_to(package / "cli.py")
    files, left_out = submit.find_code(repository)
    assert sorted(map(str, files)) == [
        "jobs/pretrain.py",
        "xalign_ray/cli.py",
        "xalign_ray/inside.py",
        "xalign_ray/recipes/tiny/mlm.yaml",
    ]
    assert sorted(map(str, left_out)) == [
        "xalign_ray/.env",
        "xalign_ray/.secrets/key.py",
        "xalign_ray/jobs.sqlite",
        "xalign_ray/keys.pem",
        "xalign_ray/link.py",
        "xalign_ray/out",
        "xalign_ray/recipes/.mine.yaml",
    ]


def test_a_recipe_goes_along_and_credentials_do_not(
    submit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: tiny/mlm\ntrack:\n  mlflow: http://ann:s3cret@host:5000\n")
    upload = tmp_path / "upload"
    upload.mkdir()
    arguments = [str(mine), "--set", "track.mlflow='postgresql://ann:s3cret@db/m'", "--set", "train.max_steps=3"]
    taken = submit.take_along(arguments, upload)
    assert taken == ["given/mine.yaml", "--set", "track.mlflow='postgresql://ann@db/m'", "--set", "train.max_steps=3"]
    assert (upload / "given" / "mine.yaml").read_text() == "extends: tiny/mlm\ntrack:\n  mlflow: http://host:5000\n"
    said = capsys.readouterr().err
    assert "The credentials in http://host:5000 do not go along" in said
    assert "give them by PGPASSWORD in the environment, or ~/.pgpass." in said
    assert "s3cret" not in said


def test_ray_job_submit_from_here_ships_our_code_and_no_dot_file(tmp_path: Path) -> None:
    """By .rayignore, as Ray itself reads it: `--working-dir .` would ship a .env otherwise."""
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    shutil.copyfile(ROOT / ".rayignore", tmp_path / ".rayignore")
    for name in ("xalign_ray/cli.py", "xalign_ray/data/.env", "jobs/pretrain.py", ".env", "notes/key.pem", "a.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    shipped: list[Path] = []
    _dir_travel(tmp_path, [_get_excludes(tmp_path, [])], shipped.append, include_gitignore=True)
    found = sorted(str(path.relative_to(tmp_path)) for path in shipped if path.is_file())
    assert found == ["jobs/pretrain.py", "xalign_ray/cli.py"]


def test_an_upload_above_50_mb_is_refused_with_its_five_largest_files(submit: ModuleType, repository: Path) -> None:
    for number in range(1, 8):
        with (repository / f"xalign_ray/dump-{number}.tsv").open("wb") as file:
            file.truncate(number * 2_000_000)
    with pytest.raises(ConfigError) as caught:
        submit.check_size(repository, submit.find_code(repository)[0])
    assert str(caught.value) == (
        "The upload is 56.0 MB, more than 50 MB. The largest files: xalign_ray/dump-7.tsv (14.0 MB), "
        "xalign_ray/dump-6.tsv (12.0 MB), xalign_ray/dump-5.tsv (10.0 MB), xalign_ray/dump-4.tsv (8.0 MB), "
        "xalign_ray/dump-3.tsv (6.0 MB). Move them out of the code: data and models go to storage that all nodes see."
    )


def test_this_repository_can_be_submitted_and_every_verb_has_its_script(submit: ModuleType) -> None:
    files, _ = submit.find_code(ROOT)
    assert submit.check_size(ROOT, files) < 5_000_000
    assert {Path("jobs", f"{verb}.py") for verb in submit.VERBS} <= set(files)
    assert {Path("xalign_ray/recipes/tiny/mlm.yaml"), Path("xalign_ray/py.typed")} <= set(files)


def test_every_kind_of_file_that_the_package_has_is_shipped(submit: ModuleType) -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["xalign_ray"]
    kinds = {Path("x" + pattern).suffix for pattern in patterns}
    assert kinds <= set(submit.SHIPPED["xalign_ray"])
