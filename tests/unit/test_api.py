"""The Python API: frames that equal the files, models of the exported folder, signals, and what an import costs."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

import xalign_ray as xa
from tests.unit.results.run_folders import score, start, step, write_run
from tests.unit.rules.tree import ROOT
from xalign_ray import pretraining
from xalign_ray.errors import ConfigError, DataError, LockError, StoppedError
from xalign_ray.planning.describe import describe
from xalign_ray.tasks.registry import TASKS
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.work.locks import LOCK, hold

HEAVY = ["torch", "ray", "transformers", "pandas", "pydantic", "numpy"]
PAGE = ROOT / "docs" / "how-to" / "python.md"
SCORES = {"tatoeba": [score(language="qgr", value=0.25), score(value=0.5)], "pos": [score("pos_accuracy", task="pos")]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", scores=SCORES)


def test_an_import_brings_in_nothing_heavy_and_says_nothing() -> None:
    code = f"import sys, xalign_ray; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_package_says_that_it_is_typed() -> None:
    assert files("xalign_ray").joinpath("py.typed").is_file()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_public_name_has_documentation_and_types() -> None:
    verbs = [getattr(xa, name) for name in xa.__all__]
    members = [member for name, member in vars(xa.Run).items() if not name.startswith("_")]
    calls = [one.fget if isinstance(one, property) else one for one in [*verbs, *members]]
    assert [one for one in calls if len(inspect.getdoc(one) or "") < 40] == []
    functions = [one for one in calls if inspect.isfunction(one)]
    assert len(functions) == 17
    for one in functions:
        sections = inspect.getdoc(one) or ""
        hints = inspect.signature(one)
        assert hints.return_annotation is not inspect.Signature.empty, one
        assert [name for name in hints.parameters if name != "self" and f"{name}:" not in sections] == [], one
        assert "Raises:" in sections, one


def test_settings_are_strings_and_a_recipe_may_be_a_file(tmp_path: Path) -> None:
    recipe = xa.load_recipe("tiny/mlm", "train.max_steps=100", "seed=3")
    assert (recipe.name, recipe.config.train.max_steps, recipe.config.seed) == ("tiny/mlm", 100, 3)
    own = tmp_path / "own.yaml"
    own.write_text("# mine\nextends: [tiny/mlm]\n")
    assert xa.load_recipe(own).name == "own"
    with pytest.raises(ConfigError, match="There is no recipe 'tiny/mml'"):
        xa.load_recipe("tiny/mml")


def test_a_plan_is_the_text_of_the_command_line() -> None:
    recipe = xa.load_recipe("tiny/mlm")
    assert xa.plan(recipe) == describe(recipe)


def test_losses_are_the_steps_of_the_event_log(folder: Path) -> None:
    frame = xa.open_run(folder).losses
    logged = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    steps = [event for event in logged if event["event"] == "step"]
    assert list(frame.columns[:4]) == ["step", "attempt", "time", "batch_hash"]
    assert set(frame.columns[4:]) == set(steps[0]["metrics"])
    for name in ("step", "attempt", "time", "batch_hash"):
        assert frame[name].tolist() == [event[name] for event in steps]
    for name in steps[0]["metrics"]:
        assert frame[name].tolist() == [event["metrics"][name] for event in steps]


def test_losses_leave_out_what_a_resume_took_back(tmp_path: Path) -> None:
    events = [start(), step(1, 6.0), step(2, 5.0), start(1, attempt=2), step(2, 5.5, attempt=2)]
    frame = xa.open_run(write_run(tmp_path / "run", events=events)).losses
    assert frame["train/loss"].tolist() == [6.0, 5.5]
    assert frame["attempt"].tolist() == [1, 2]


def test_a_hash_beyond_the_signed_numbers_stays_whole(tmp_path: Path) -> None:
    largest = 2**64 - 1
    events = [start(), step(1, 6.0), step(2, 5.0) | {"batch_hash": largest}]
    assert xa.open_run(write_run(tmp_path / "run", events=events)).losses["batch_hash"].tolist() == [1, largest]


def test_frames_have_their_columns_before_there_is_a_row(tmp_path: Path) -> None:
    run = xa.open_run(write_run(tmp_path / "run", events=[start()]))
    assert (len(run.losses), list(run.losses.columns)) == (0, ["step", "attempt", "time", "batch_hash"])
    assert (len(run.scores), list(run.scores.columns)) == (0, list(Score.__dataclass_fields__))


def test_scores_are_the_records_of_all_evaluations(folder: Path) -> None:
    frame = xa.open_run(folder).scores
    written = [one for task in ("pos", "tatoeba") for one in read_scores(folder / "evaluation" / task / "scores.json")]
    assert [Score(**row) for row in frame.to_dict("records")] == written
    assert frame["language"].tolist() == ["all", "qgr", "all"]


def test_to_open_and_read_a_run_writes_nothing(folder: Path) -> None:
    before = sorted(path for path in folder.parent.rglob("*"))
    run = xa.open_run(folder)
    assert (len(run.losses), len(run.scores)) == (4, 3)
    assert sorted(path for path in folder.parent.rglob("*")) == before


def test_a_path_that_is_no_run_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="There is no folder"):
        xa.open_run(folder.parent / "rnu")
    with pytest.raises(DataError, match="is not a run"):
        xa.open_run(folder.parent / "data")


def test_a_run_without_an_export_says_how_to_get_one(folder: Path) -> None:
    run = xa.open_run(folder)
    for opened in (run.model, run.tokenizer):
        with pytest.raises(DataError, match=r"holds no export.*xalign export"):
            opened()


@pytest.mark.parametrize("head", [True, False], ids=["with its head", "without a head"])
def test_model_and_tokenizer_are_those_of_the_export(folder: Path, head: bool) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

    words = {"[UNK]": 0, "[PAD]": 1, "[MASK]": 2, "tree": 3}
    shape = BertConfig(
        vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, pad_token_id=1
    )
    own = (BertForMaskedLM if head else BertModel)(shape)
    own.save_pretrained(folder / "export")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")), unk_token="[UNK]", pad_token="[PAD]"
    )
    tokenizer.save_pretrained(folder / "export")
    run = xa.open_run(folder)
    assert type(run.model()) is type(own)
    weights, opened = own.state_dict(), run.model().state_dict()
    assert all(weights[name].equal(opened[name]) for name in weights)
    assert run.tokenizer().get_vocab()["tree"] == 3


def test_evaluate_gives_the_scores_as_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Scored:
        needs_data = takes_prompt = True

        def evaluate(self, *given: object, **options: object) -> list[Score]:
            asked.append((*given, options))
            return SCORES["tatoeba"]

    monkeypatch.setitem(TASKS, "tatoeba", Scored())
    monkeypatch.chdir(tmp_path)
    for name in ("encoder", "files"):
        (tmp_path / name).mkdir()
    (tmp_path / "encoder" / "config.json").write_text("{}", encoding="utf-8")
    frame = xa.evaluate(Path("encoder"), "tatoeba", "files", out="scores", languages=["qgr"], prompt="query: ")
    assert asked == [(str(tmp_path / "encoder"), tmp_path / "files", ["qgr"], {"prompt": "query: "})]
    assert frame["value"].tolist() == [0.25, 0.5]


def test_report_takes_opened_runs(folder: Path) -> None:
    assert xa.report(xa.open_run(folder)) == folder / "report" / "index.html"


def asks(monkeypatch: pytest.MonkeyPatch, work) -> None:
    monkeypatch.setattr(pretraining, "prepare", lambda *_, **__: work())


def test_ctrl_c_is_keyboard_interrupt_and_handlers_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    asks(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        xa.prepare(xa.load_recipe("tiny/mlm"))
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_stop_that_was_heeded_is_keyboard_interrupt_with_what_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_in_order() -> None:
        raise StoppedError("Stopped (SIGINT): step 3 of 4 is saved.")

    asks(monkeypatch, stop_in_order)
    with pytest.raises(KeyboardInterrupt, match="step 3 of 4 is saved"):
        xa.prepare(xa.load_recipe("tiny/mlm"))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 1)])
def test_other_stop_signals_end_the_interpreter_in_order(name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asks(monkeypatch, lambda: signal.raise_signal(signal.Signals[name]))
    with pytest.raises(SystemExit) as ended:
        xa.prepare(xa.load_recipe("tiny/mlm"))
    assert ended.value.code == code


def test_a_lost_lock_interrupts_even_where_ctrl_c_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose() -> None:
        with hold(tmp_path, "prepare", beat_s=0.05):
            (tmp_path / LOCK).unlink()
            time.sleep(60)

    asks(monkeypatch, lose)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(LockError, match="no longer locked"):
            xa.prepare(xa.load_recipe("tiny/mlm"))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_example_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But for the block that trains: its run is given."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    without_ray = [block for block in blocks if "needs Ray" not in block.splitlines()[0]]
    assert (len(blocks), len(without_ray)) == (3, 2)
    names: dict[str, object] = {}
    exec(without_ray[0], names)
    exec(without_ray[1].replace("runs/tiny-mlm-1a2b3c4d", str(folder)), names)
    said = capsys.readouterr().out
    assert "tiny/mlm" in said
    assert "6.0" in said
