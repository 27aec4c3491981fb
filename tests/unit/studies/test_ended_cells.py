"""The end of a cell costs the same however many cells there are; a finished search releases its repetitions alone."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.studies import progress, queue
from xalign_ray.studies.cells import FAILED, FINISHED, NOT_CHOSEN, STOPPED, WAITING, Cell
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.plan import Plan, plan_study
from xalign_ray.studies.progress import Progress, describe
from xalign_ray.studies.queue import Queue
from xalign_ray.studies.workers import CellRunner, Halving, failure_reason
from xalign_ray.tasks.scores import Score, write_scores
from xalign_ray.work.artifacts import read_json, write_manifest

FINETUNINGS = """
  - {task: pos, data: pos, languages: [en], seeds: [0, 1], settings: {learning_rate: [1.0e-5, 2.0e-5, 3.0e-5]}}
"""


def open_study(folder: Path, encoders: int = 4, search: str = "") -> Queue:
    models = ", ".join(f"{{model: /m{number}, label: m{number}}}" for number in range(encoders))
    tree = f'name: many\nmlflow: "off"\nroot: .\nencoders: [{models}]\nfinetunings:{FINETUNINGS}{search}'
    (folder / "study.yaml").write_text(tree)
    return Queue(plan_study(load_study(str(folder / "study.yaml")), folder, str), folder / "study")


def finish(cell: Cell, study: Path, development: float) -> None:
    """Writes the files of a fine-tuning that has finished."""
    score = {"run": None, "encoder": "m", "objective": None, "task": "pos", "split": "test", "language": "en"}
    score |= {"metric": "pos_accuracy", "value": 0.5, "chance": None, "n": 1, "seed": 0, "step": None}
    write_scores(cell.folder(study) / "scores.json", [Score(**score)])
    write_manifest(cell.folder(study), {"kind": "tuned", "development": development})


class Fake:
    """A cluster of one CPU on which a cell ends as soon as it is started: with a score, or with an error."""

    scores: dict[Cell, float | BaseException | None]
    ran: list[Cell]

    def __init__(self, _: Plan, folder: Path) -> None:
        self._study = folder

    def start(self, job: Cell) -> Future[None]:
        Fake.ran.append(job)
        future: Future[None] = Future()
        outcome = Fake.scores.get(job, 0.5)
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
            return future
        if outcome is not None:
            finish(job, self._study, outcome)
        future.set_result(None)
        return future

    __exit__ = lambda *_: None  # noqa: E731

    def __enter__(self) -> Fake:
        return self


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoGauges:
        show = close = lambda *_: None

    Fake.scores, Fake.ran = {}, []
    monkeypatch.setattr(queue, "CellRunner", Fake)
    monkeypatch.setattr(queue, "CellGauges", lambda _: NoGauges())
    monkeypatch.setattr(queue, "lasting_nodes", lambda: [{"Resources": {"CPU": 1.0}}])
    for asked in ("cluster_resources", "available_resources"):
        monkeypatch.setattr(queue.ray, asked, lambda: {"CPU": 1.0})


OPENED: list[str] | None = None


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and OPENED is not None:
        OPENED.append(str(arguments[0]))


sys.addaudithook(note_opened)  # for the life of the process; it only notes inside `opened_files`


def files_opened(study: Queue) -> Counter[str]:
    """The files that were opened while all cells of a study ended."""
    global OPENED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "say", lambda _: None)
        reported = Progress(study)
        OPENED = []
        try:
            study.run(reported.report_end, reported.write_if_due)
        finally:
            opened, OPENED = OPENED, None
    return Counter(Path(path).name for path in opened if str(study.folder) in path)


def test_files_opened_per_ended_cell_do_not_grow_with_the_number_of_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "RECORD_S", 3600.0)
    small, large = (tmp_path / name for name in ("small", "large"))
    per_cell = []
    for folder, encoders in ((small, 2), (large, 20)):
        folder.mkdir()
        study = open_study(folder, encoders)
        opened = files_opened(study)
        assert len(study.cells) == 6 * encoders
        assert study.counts[FINISHED] == len(study.cells)
        per_cell.append({name: opened[name] / len(study.cells) for name in ("manifest.json", "scores.json")})
        assert opened["study.json"] == 0, "it is written under another name"
        assert len([name for name in opened if name.startswith(".study.json.")]) <= 1, "a name for each time"
    assert per_cell == [{"manifest.json": 2.0, "scores.json": 1.0}] * 2  # once to compare it with its scores


def test_study_json_has_the_state_and_the_reason_of_each_cell(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    Fake.scores = dict.fromkeys(study.trials[::5], TrainingError("the loss became nan"))
    study.run(lambda _: None)
    Progress(study).write()
    cells = read_json(study.folder / "study.json", "")["cells"]
    assert Counter(cell["state"] for cell in cells) == Counter({FINISHED: 19, FAILED: 5})
    assert {cell["reason"] for cell in cells} == {None, "the loss became nan"}
    assert [cell["name"] for cell in cells] == [job.name for job in study.trials]


def test_study_json_has_a_choice_once_the_search_is_over(tmp_path: Path) -> None:
    def interrupt(_: Cell) -> None:
        if len(Fake.ran) == 7:
            raise KeyboardInterrupt

    for ended, of_second in ((interrupt, None), (lambda _: None, True)):  # the second continues the study
        study = open_study(tmp_path, encoders=2)
        Fake.scores = {cell: cell.settings.learning_rate * 1e4 for cell in study.trials}
        best = [cell.settings.learning_rate == 3e-5 for cell in study.trials]
        with suppress(KeyboardInterrupt):
            study.run(ended)
        Progress(study).write()
        cells = read_json(study.folder / "study.json", "")["cells"]
        assert [cell["chosen"] for cell in cells] == [*best[:6], *(of_second and chosen for chosen in best[6:])]


def test_a_fine_tuning_of_one_setting_counts_as_soon_as_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Cell) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[__name__], "FINETUNINGS", FINETUNINGS.replace(", 2.0e-5, 3.0e-5", ""))
    study = open_study(tmp_path, encoders=1)
    with suppress(KeyboardInterrupt):
        study.run(interrupt)
    assert [describe(study, cell, study.kept)["chosen"] for cell in study.cells] == [True, None]


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 1), (10.0, 0)])
def test_a_cell_waits_until_others_have_left_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, times: int
) -> None:
    """Said once, and not between two cells, where Ray frees what the first has taken a moment later."""
    monkeypatch.setattr(queue, "HELD_UP_S", seconds)
    free = iter([0.0, 0.0, 0.0, *[1.0] * 100])
    monkeypatch.setattr(queue.ray, "available_resources", lambda: {"CPU": next(free)})
    study = open_study(tmp_path, encoders=1)
    study.run(lambda _: None)
    assert study.counts[FINISHED] == 6
    assert capsys.readouterr().err.count("The study waits.") == times


def test_cells_whose_memory_the_node_lacks_are_refused_or_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"CPU": 4.0, "memory": 24e9}
    monkeypatch.setattr(queue, "lasting_nodes", lambda: [{"Resources": there}])
    for asked in ("cluster_resources", "available_resources"):
        monkeypatch.setattr(queue.ray, asked, lambda: there)
    study = open_study(tmp_path, encoders=2, search="resources: {memory: 13}\n")
    assert str(study.cells[0].resources) == "1 CPU, 13 GB"
    assert study._has_room(study.cells[0])
    study._running = {study.cells[0]: Future()}
    assert not study._has_room(study.cells[1])
    study = open_study(tmp_path, encoders=1, search="resources: {memory: 25}\n")
    with pytest.raises(
        ConfigError, match=r"m0: pos, .* needs 25 GB; its largest node has 24 GB\. Lower its resources,"
    ):
        study.run(lambda _: None)


def test_cells_start_in_the_order_of_the_plan_and_a_failed_one_twice(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    poor = study.trials[2]
    Fake.scores = {poor: ActorDiedError()}
    study.run(lambda _: None)
    assert Fake.ran == [*study.cells[:2], poor, poor, *study.cells[3:]]
    assert [job for job in study.cells if study.ends[job].state == FAILED] == [poor]
    assert study.failures[poor] == failure_reason(ActorDiedError())


@pytest.mark.parametrize("best", [0, -1])
@pytest.mark.parametrize("interrupted_after", [1, 2, 5])
def test_repetitions_run_of_the_setting_that_their_search_chose(
    tmp_path: Path, best: int, interrupted_after: int
) -> None:
    def interrupt(_: Cell) -> None:
        if len(Fake.ran) == interrupted_after:
            raise KeyboardInterrupt

    for _ in range(2):  # the second continues the study
        study = open_study(tmp_path, search="search: {num_samples: 3, asha: {}}\n")
        searched = [cell for cell in study.trials if not cell.after_choice]
        settings = {cell.encoder: [one.setting for one in searched if one.encoder == cell.encoder] for cell in searched}
        Fake.scores = {cell: 0.5 + 0.1 * (cell.setting == settings[cell.encoder][best]) for cell in searched}
        with suppress(KeyboardInterrupt):
            study.run(interrupt)
    assert len(settings["m0"]) > 1
    for cell in study.trials:
        chosen = cell.setting == settings[cell.encoder][best]
        assert study.ends[cell].state == (FINISHED if chosen or not cell.after_choice else NOT_CHOSEN)
    names = [str(cell) for cell in Fake.ran]
    assert len(names) == len(set(names)) == len(searched) + 4, "none is run twice"
    for cell in Fake.ran:
        if cell.after_choice:
            rivals = [str(one) for one in searched if one.search == cell.search]
            assert names.index(str(cell)) > max(map(names.index, rivals))


def test_a_cell_that_ends_without_scores_fails_and_is_not_run_again(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    cell = study.trials[0]
    Fake.scores = {cell: None}
    study.run(lambda _: None)
    assert Fake.ran.count(cell) == 1
    assert study.failures == {
        cell: f"it ended and left no result in {study.folder}. Workers must see this folder, and run the same version "
        "of xalign_ray as the driver."
    }


@pytest.mark.parametrize(("search", "stopped"), [("search: {asha: {}}\n", 1), ("", 0)])
def test_a_stopped_cell_is_not_run_again_while_the_study_stops_some(tmp_path: Path, search: str, stopped: int) -> None:
    study = open_study(tmp_path, search="search: {asha: {}}\n")
    folder = study.trials[0].folder(study.folder)
    folder.mkdir(parents=True)
    (folder / "stopped.json").write_text("{}")
    again = open_study(tmp_path, search=search)
    left = {"waiting": 24 - stopped, "running": 0, FINISHED: 0, STOPPED: stopped, FAILED: 0, NOT_CHOSEN: 0}
    assert again.counts == left
    assert again.left == sum(end.state == WAITING for end in again.ends.values()) == 24 - stopped


def test_halving_stops_what_is_below_the_best_third_at_each_rung() -> None:
    """Against the rule of the paper, written down again: at epochs 1, 3, 9 the best third of those seen goes on."""
    halving, seen = Halving({"reduction_factor": 3, "max_t": 9}), {1: list[float](), 3: [], 9: []}
    scores = [((7 * trial) % 20) / 20 for trial in range(20)]
    for trial, score in enumerate(scores):
        for epoch in range(1, 10):
            goes_on = halving.goes_on(f"cell {trial}", ("mlm", "pos"), epoch, score)
            expected = True
            if epoch in seen:
                before = sorted(seen[epoch])
                place = (len(before) - 1) * 2 / 3  # percentile 66.7 of those before, interpolated
                low, part = int(place), place % 1
                expected = not before or score >= before[low] + part * (
                    before[min(low + 1, len(before) - 1)] - before[low]
                )
                seen[epoch].append(score)
            assert goes_on == expected, (trial, epoch)
            if not goes_on:
                break
    assert halving.goes_on("another search", ("mlm", "xnli"), 1, 0.0)


def test_workers_of_a_grid_have_no_halving(tmp_path: Path) -> None:
    assert CellRunner(open_study(tmp_path).plan, tmp_path)._halving is None
