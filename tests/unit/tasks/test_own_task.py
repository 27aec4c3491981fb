"""A task of the user's own: a module with one object of Task, named where a task is named."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.evaluation import known_task
from xalign_ray.studies.declared import EvaluationConfig, FineTuningConfig, load_study
from xalign_ray.studies.plan import plan_study
from xalign_ray.tasks import registry
from xalign_ray.tasks.scores import Score, read_scores, write_scores
from xalign_ray.work.artifacts import write_records

MOOD = """
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.task import Metric, Task
from xalign_ray.tasks.text_classification import ClassificationTask


class MoodTask(ClassificationTask):
    name = __name__
    metrics = (Metric("mood_accuracy", "Moods", "sentences whose mood was predicted right"),)
    classes = ("statement", "order")
    files = ("{language}.{split}.tsv",)
    texts = ("sentence",)
    label = "mood"


class LengthTask(Task):
    name = __name__
    metrics = (Metric("length", "Length", "how long"),)
    needs_data = False

    def evaluate(self, encoder, data, languages=None, device="auto"):
        return []
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules of tasks, which are forgotten afterwards."""
    (tmp_path / "own_tasks").mkdir()
    for name, last in {
        "mood": "MOOD = MoodTask()",
        "length": "LENGTH = LengthTask()",
        "two": "MOOD, LENGTH = MoodTask(), LengthTask()",
        "none": "OTHER = TUNED_TASKS['pos']",
        "again": "MOOD = MoodTask()",
        "tone": "MoodTask.name = 'tone'\nTONE = MoodTask()",
        "cut": "MOOD = MoodTask(",
        "bare": "class BareTask(Task): name = __name__\nBARE = BareTask()",
    }.items():
        (tmp_path / "own_tasks" / f"{name}.py").write_text(f"{MOOD}\n\n{last}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_tasks"]:
        del sys.modules[name]


@pytest.mark.usefixtures("here")
def test_it_is_known_by_its_module_with_its_metrics() -> None:
    assert known_task("own_tasks.mood", registry.TASKS) == "own_tasks.mood"
    task = registry.TUNED_TASKS["own_tasks.mood"]
    assert (task.name, task.classes) == ("own_tasks.mood", ("statement", "order"))
    assert registry.METRICS["mood_accuracy"].of_tuned_head
    assert registry.METRICS["mood_accuracy_supervised"].title == "Moods, fine-tuned on the language itself"
    assert FineTuningConfig.model_validate({"task": "own_tasks.mood", "data": "mood"}).task == "own_tasks.mood"
    assert EvaluationConfig.model_validate({"task": "own_tasks.length"}).task == "own_tasks.length"
    assert "own_tasks.length" not in registry.TUNED_TASKS


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_tasks.nowhere", "there is no module own_tasks.nowhere in "),
        ("own_tasks.two", "has 2 objects of Task (xalign_ray.tasks.task); a task of your own is a module with one"),
        ("own_tasks.none", "has 0 objects of Task (xalign_ray.tasks.task); a task of your own is a module with one"),
        ("own_tasks.tone", "own_tasks.tone has a task of the name 'tone'; a task of your own is named as its module"),
        ("own_tasks.mood.py", "own_tasks.mood.py"),
        ("own_tasks.cut", "own_tasks/cut.py, line 25: '(' was never closed"),
        ("own_tasks.bare", "own_tasks/bare.py, line 26: TypeError: Can't instantiate abstract class BareTask"),
    ],
)
def test_a_module_that_is_no_task_is_refused_in_a_study_and_on_the_command_line(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^--task {re.escape(name)}: .*{re.escape(said)}"):
        known_task(name, registry.TASKS)
    with pytest.raises(ValueError, match=re.escape(said)):
        FineTuningConfig.model_validate({"task": name, "data": "mood"})


@pytest.mark.usefixtures("here")
def test_a_metric_that_another_task_has_is_refused() -> None:
    known_task("own_tasks.mood", registry.TASKS)
    with pytest.raises(ConfigError, match=r"own_tasks\.again has a metric mood_accuracy, as another task has"):
        known_task("own_tasks.again", registry.TASKS)


def test_a_change_of_its_code_makes_another_cell_of_a_study(here: Path) -> None:
    (here / "study.yaml").write_text(
        "name: own\nmlflow: off\nroot: .\nencoders: [{model: /m}]\n"
        "evaluations: [{task: own_tasks.length}, {task: alignment}]\n"
    )

    def cells() -> list[str]:
        plan = plan_study(load_study(str(here / "study.yaml")), here / "runs", str)
        return [job.name for job in plan.cells if not job.recipe]

    before = cells()
    assert cells() == before
    path = here / "own_tasks" / "length.py"
    path.write_text(path.read_text().replace("return []", "return [1]"))
    assert cells()[0] != before[0]
    assert cells()[1] == before[1]


def test_a_change_of_a_file_or_of_a_given_model_makes_another_cell_of_a_study(here: Path) -> None:
    (here / "study.yaml").write_text(
        "name: own\nmlflow: off\nroot: .\nencoders: [{model: m}]\n"
        "evaluations: [{task: tatoeba, data: pairs}, {task: alignment}]\n"
    )
    (here / "pairs").mkdir()
    (here / "pairs" / "de.txt").write_text("eins\n")
    (here / "m").mkdir()
    (here / "m" / "model.safetensors").write_text("weights")

    def cells() -> list[str]:
        plan = plan_study(load_study(str(here / "study.yaml")), here / "runs", lambda name: str(here / name))
        return [job.name for job in plan.cells if not job.recipe]

    tatoeba, alignment = cells()
    (here / "m" / "README.md").write_text("a card that is written again with each score")
    assert cells() == [tatoeba, alignment]
    (here / "pairs" / "de.txt").write_text("zwei\n")
    assert cells()[0] != tatoeba
    assert cells()[1] == alignment
    (here / "m" / "model.safetensors").write_text("others")
    assert cells()[1] != alignment


def test_its_scores_are_read_in_another_process_where_the_module_is(here: Path) -> None:
    known_task("own_tasks.length", registry.TASKS)
    empty = {"run": "r", "encoder": "e", "objective": None, "split": "test", "chance": None, "seed": 0, "step": 1}
    score = Score(**empty, task="own_tasks.length", language="en", metric="length", value=0.5, n=3)
    write_scores(here / "scores.json", [score])
    read = "import sys; from pathlib import Path; from xalign_ray.tasks.scores import read_scores; "
    read += "print(read_scores(Path(sys.argv[1]))[0].value)"
    done = subprocess.run(
        [sys.executable, "-c", read, "scores.json"], cwd=here, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0.5\n"


def test_scores_whose_module_is_not_here_are_said_to_be_so(tmp_path: Path) -> None:
    record = {"run": "r", "encoder": "e", "objective": None, "split": "test", "chance": None, "seed": 0, "step": 1}
    record |= {"task": "own_tasks.gone", "language": "en", "metric": "gone", "value": 0.5, "n": 3}
    write_records(tmp_path / "scores.json", [record])
    said = "The scores of r are of the task own_tasks.gone, a module of somebody's own, which cannot be read here: "
    with pytest.raises(DataError, match=re.escape(said)):
        read_scores(tmp_path / "scores.json")
