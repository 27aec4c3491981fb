"""The names in a run folder stand in one place, and mean what a reader of the folder finds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.rules.tree import PACKAGE, ROOT, python_files
from xalign_ray.config.saved import check_identity
from xalign_ray.errors import ConfigError
from xalign_ray.work import run_folder
from xalign_ray.work.run_folder import RunFolder

COMMON = {"export", "report", "evaluation", "data"}  # words that mean other things in other modules too
NAMES = {value for name, value in vars(run_folder).items() if name.isupper()} - COMMON


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (RunFolder(Path("run")).config, "config.yaml"),
        (RunFolder(Path("run")).events, "events.jsonl"),
        (RunFolder(Path("run")).manifest, "manifest.json"),
        (RunFolder(Path("run")).export, "export"),
        (RunFolder(Path("run")).export_at(200), "export_step_000200"),
        (RunFolder(Path("run")).checkpoint(1_000_000), "checkpoints/step_1000000"),
        (RunFolder(Path("run")).evaluation("tatoeba"), "evaluation/tatoeba"),
        (RunFolder(Path("run")).report, "report"),
        (RunFolder(Path("run")).ray, "ray"),
    ],
    ids=str,
)
def test_what_lies_where(found: Path, name: str) -> None:
    assert found == Path("run") / name


def test_an_export_says_its_run_folder_by_its_name() -> None:
    assert RunFolder.of_export(Path("runs/a/export")) == RunFolder(Path("runs/a"))
    assert RunFolder.of_export(Path("xlm-roberta-base")) is None


def test_an_export_of_a_step_says_it_by_its_name() -> None:
    folder = RunFolder(Path("runs/a"))
    steps = (0, 500, 1_000_000)
    assert tuple(RunFolder.step_of(folder.export_at(step)) for step in steps) == steps
    assert RunFolder.step_of(folder.export) is None


def test_score_files_are_those_of_the_tasks_and_the_folders_own(tmp_path: Path) -> None:
    for name in ("evaluation/tatoeba/scores.json", "evaluation/pos/scores.json", "scores.json", "else/scores.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [path.relative_to(tmp_path).as_posix() for path in RunFolder(tmp_path).score_files]
    assert found == ["evaluation/pos/scores.json", "evaluation/tatoeba/scores.json", "scores.json"]


def test_no_other_module_writes_a_name_of_a_run_folder() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in python_files(PACKAGE)
        if path.relative_to(PACKAGE).as_posix() not in {"work/run_folder.py", "work/artifacts.py"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in NAMES
    }
    assert wrong == set()


@pytest.mark.parametrize("text", ["project: mine\n", "project: mine", "- a\n", "'"])
def test_a_config_of_no_run_is_not_written_over(tmp_path: Path, text: str) -> None:
    """As with `--out .` in a user's own folder."""
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml is there, and is of no run\. Give another --out\."):
        check_identity(tmp_path, {"fingerprint": "f" * 64})
    (tmp_path / "config.yaml").write_text("recipe:")  # torn, and written anew: the log says that a run has begun here
    (tmp_path / "events.jsonl").touch()
    check_identity(tmp_path, {"fingerprint": "f" * 64})
