"""The blocks of the tutorials do what the pages say, in a copy of the package or in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, command, commands, text_of, write_files
from tests.ray.tagging_world import write_encoder
from tests.unit.conftest import prepare_here
from xalign_ray import cli
from xalign_ray.config.load import load_recipe
from xalign_ray.track.events import read_events


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with the files of the page on losses in it."""
    folder = tmp_path_factory.mktemp("own")
    write_files("add_a_loss.md", folder)
    return folder


def run(folder: Path, *command: str, code: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(code or folder)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(("page", "passed"), [("add_a_loss.md", 2), ("add_a_family.md", 1)])
def test_the_pages_own_test_passes(page: str, passed: int, own_folder: Path) -> None:
    write_files(page, own_folder)
    words = command(page, "python -m pytest")[1:]
    done = run(own_folder, *words, "-q", "-p", "no:cacheprovider", code=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


def test_the_losss_recipe_is_planned(own_folder: Path) -> None:
    checked = run(own_folder, "-m", "xalign_ray", *command("add_a_loss.md", "xalign plan")[1:], code=ROOT)
    assert checked.returncode == 0, checked.stderr
    assert "1 masked_lm, 1 sentence_pull" in checked.stdout


def test_a_recipe_without_its_stream_is_refused_in_the_words_of_the_page(own_folder: Path) -> None:
    without = ["config", "check", "sentence-pull.yaml", "--set", "streams=[{kind: masked_text}]"]
    refused = run(own_folder, "-m", "xalign_ray", *without, code=ROOT)
    said = "objective sentence_pull needs a stream contrasted_pairs; the recipe names none"
    assert said in refused.stderr
    assert said in text_of("add_a_loss.md")


WITHOUT_RAY = """
import glob, json, sys
from tests.ray.small import batches, write_world
from xalign_ray import cli, pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.sources import stage
from xalign_ray.train import cluster
from pathlib import Path
stage._run_tasks = lambda tasks, work, *_: [work(task) for task in tasks]
cluster.connect = lambda *_: None
world = [one for one in write_world(Path("runs"), sentences=200, parallel=40) if one.startswith(("data.root", "track"))]
settings = [*world, *batches(8, 8, 2, 2), "parallel.workers=1", "output=runs"]
pretraining.prepare(load_recipe("sentence-pull.yaml", settings))
pretrain, evaluate = json.loads(sys.argv[1])
pretrain += ["--no-ray", *(word for one in settings for word in ("--set", one))]
for words in (pretrain, evaluate):
    sys.argv = [part for word in words for part in (glob.glob(word) if "*" in word else [word])]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, ended.code
"""  # both commands in one process: shards are made and steps are taken in it


SHORT = "    train: {max_steps: 2, global_batch_size: 8, per_device_batch_size: 8, eval_steps: 0}\n"


def test_the_new_loss_trains_and_its_run_is_evaluated(own_folder: Path, tmp_path: Path) -> None:
    words = [command("add_a_loss.md", f"xalign {verb}") for verb in ("pretrain", "evaluate")]
    for name in ("xalign_ray", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name)
    table = tmp_path / "xalign_ray" / "recipes" / "tiny" / "methods.arms.yaml"  # of tiny/mlm
    extends = "    extends: base/tiny\n"
    table.write_text(table.read_text(encoding="utf-8").replace(extends, extends + SHORT, 1), encoding="utf-8")
    done = run(own_folder, "-c", WITHOUT_RAY, json.dumps(words), code=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (own_folder / "runs").glob("sentence-pull-*")
    steps = [event["metrics"] for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    assert len(steps) == 2
    assert all({"train/loss_sentence_pull", "train/sentence_cosine"} <= step.keys() for step in steps)
    assert (folder / "evaluation" / "tatoeba" / "scores.json").is_file()


HERE = """
import json, sys
import pytest
from tests.parity.cells_here import run_cells_here
from xalign_ray.cli import main
run_cells_here(pytest.MonkeyPatch(), [], [])
for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        main()
    except SystemExit as ended:
        print("exit", ended.code, flush=True)
"""  # xalign without Ray, cells one after the other; commands share a process, which imports everything once


@pytest.fixture(scope="module")
def with_a_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page on tasks in it, its data, and an encoder."""
    folder = tmp_path_factory.mktemp("task")
    write_files("add_a_task.md", folder)
    write_encoder(folder / "runs" / "mlm")
    assert "python make_moods.py" in commands("add_a_task.md")
    assert run(folder, "make_moods.py").returncode == 0
    return folder


def test_the_new_tasks_own_test_passes(with_a_task: Path) -> None:
    test = "test_mood.py"
    assert f"python -m pytest {test}" in commands("add_a_task.md")
    done = run(with_a_task, "-m", "pytest", "-q", "-p", "no:cacheprovider", test, code=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def tuned(with_a_task: Path) -> subprocess.CompletedProcess[str]:
    """The page's `tune`, its `study --plan`, and `tune` again on files with a label that the task lacks."""
    pretrain, tune, study = (shlex.split(line) for line in commands("add_a_task.md") if line.startswith("xalign"))
    assert (pretrain[-1], tune[2]) == ("runs/mlm", "runs/mlm")
    shutil.copytree(with_a_task / "mood", with_a_task / "bad" / "mood")
    file = with_a_task / "bad" / "mood" / "en.train.tsv"
    header, row, *others = file.read_text(encoding="utf-8").split("\n")
    file.write_text("\n".join([header, row.replace("statement", "wish"), *others]), encoding="utf-8")
    bad = [{"mood": "bad/mood", "runs/mood": "runs/bad"}.get(word, word) for word in tune]
    bad[bad.index("--task") + 1] = "my_tasks.mood"
    return run(with_a_task, "-c", HERE, json.dumps([tune, study, bad]), code=ROOT)


def test_the_new_task_is_tuned_scored_and_planned(with_a_task: Path, tuned: subprocess.CompletedProcess[str]) -> None:
    assert re.findall(r"^exit (\d)$", tuned.stdout, re.M)[:2] == ["0", "0"], tuned.stderr
    found = json.loads((with_a_task / "runs" / "mood" / "scores.json").read_text(encoding="utf-8"))["scores"]
    scores = {(score["language"], score["metric"]) for score in found}
    assert {("en", "mood_accuracy"), ("de", "mood_accuracy")} <= scores
    assert tuned.stdout.count("my_tasks.mood, lr") == 4


def test_a_label_that_the_new_task_lacks_is_refused_in_the_words_of_the_page(
    tuned: subprocess.CompletedProcess[str],
) -> None:
    said = "mood/en.train.tsv, line 2: the label 'wish' is none of statement, question, order."
    assert said in tuned.stderr
    assert said in text_of("add_a_task.md")
    assert re.findall(r"^exit (\d)$", tuned.stdout, re.M)[2:] == ["1"], tuned.stdout


def said_on(
    page: str, recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the short commands of a page say in the files that it writes, once its recipe is prepared."""
    write_files(page, folder)
    assert run(folder, "make_files.py").returncode == 0
    monkeypatch.chdir(folder)
    prepare_here(load_recipe(recipe).config)
    said = ""
    for line in commands(page):
        if (
            line.startswith("xalign")
            and line.split()[1] not in ("prepare", "report")
            and line != "xalign study study.yaml"
        ):
            monkeypatch.setattr(sys, "argv", shlex.split(line))
            with pytest.raises(SystemExit) as ended:
                cli.main()
            printed = capsys.readouterr()
            assert not ended.value.code, printed.err
            said += printed.out[-2000:] + printed.err
    return said


def test_own_languages_are_prepared_and_their_study_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_on("your_languages.md", "mlm.yaml", tmp_path, monkeypatch, capsys)
    assert "mlm.yaml is valid." in said
    assert "drawn in " in said
    assert "8 cells: 8 waiting" in said


def test_twenty_languages_are_read_planned_and_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_on("twenty_languages.md", "twenty.yaml", tmp_path, monkeypatch, capsys)
    assert "12 documents\n" in said
    assert "60 pairs\n" in said
    counted = re.search(r"The last ends with `(.+?)`", text_of("twenty_languages.md"))
    assert counted
    assert f"{counted[1]}\n" in said
    assert "twenty.yaml is valid." in said
    assert "2 cells: 2 waiting" in said
