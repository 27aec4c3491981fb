"""What the shell is offered when a command is half written, as bash asks for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.cli import app
from xalign_ray.config.explain import flatten
from xalign_ray.config.load import list_recipes, list_studies, load_recipe
from xalign_ray.tasks import TASK_NAMES, TUNED_TASK_NAMES, registry

Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_XALIGN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            app(prog_name="xalign")
        return capsys.readouterr().out.split()

    return ask


@pytest.mark.parametrize("verb", ["prepare", "plan", "pretrain", "config show", "config check", "data stats"])
def test_recipes_are_offered(complete: Complete, verb: str) -> None:
    assert complete(f"xalign {verb} tiny/dict-mlm-") == [
        "tiny/dict-mlm-50",
        "tiny/dict-mlm-50-unconditioned",
        "tiny/dict-mlm-70",
        "tiny/dict-mlm-90",
    ]
    assert complete(f"xalign {verb} ") == list_recipes()


def test_two_recipes_are_offered_where_two_are_compared(complete: Complete) -> None:
    assert complete("xalign config diff tiny/mlm tiny/xlm") == ["tiny/xlm", "tiny/xlm-align"]


def test_studies_are_offered_to_their_verb(complete: Complete) -> None:
    assert complete("xalign study ") == list_studies()
    assert complete("xalign tune runs/x --set num_t") == ["num_train_epochs="]


def test_a_file_is_left_to_the_shell(complete: Complete) -> None:
    assert complete("xalign pretrain mine/rec") == []


def test_tasks_are_offered_that_the_verb_has(complete: Complete) -> None:
    assert set(complete("xalign evaluate runs/x --task ")) == {*TASK_NAMES, "mteb:NAME"}
    assert set(complete("xalign tune runs/x --task ")) == set(registry.TUNED_TASKS)
    assert complete("xalign evaluate runs/x --task tat") == ["tatoeba"]


def test_the_names_that_are_known_without_torch_are_those_of_the_registry() -> None:
    assert sorted(TASK_NAMES) == sorted(registry.TASKS)
    assert sorted(TUNED_TASK_NAMES) == sorted(registry.TUNED_TASKS)


def test_languages_are_offered_one_after_another(complete: Complete) -> None:
    assert {"de", "en", "hi"} <= set(complete("xalign evaluate runs/x --languages "))
    assert complete("xalign evaluate runs/x --languages en,h") == ["en,he", "en,hi", "en,hu"]
    assert complete("xalign tune runs/x --train-language h") == ["he", "hi", "hu"]


def test_keys_are_offered_that_the_recipe_has(complete: Complete) -> None:
    assert complete("xalign pretrain tiny/mlm --set train.max_s") == ["train.max_steps="]
    keys = complete("xalign plan tiny/all --set ")
    assert keys == [f"{key}=" for key in flatten(load_recipe("tiny/all").config.model_dump(mode="json"))]
    assert {"objectives.3.weight=", "seed="} <= set(keys)
    assert complete("xalign plan tiny/all --set seed=1 --set train.max_s") == ["train.max_steps="]


def test_keys_are_offered_before_the_recipe_is_written_and_where_it_is_none(complete: Complete) -> None:
    assert complete("xalign pretrain --set train.max_s") == ["train.max_steps="]
    assert complete("xalign study quickstart --set train.max_s") == ["train.max_steps="]
    assert complete("xalign pretrain no/such --set train.max_s") == ["train.max_steps="]


def test_formats_are_offered_that_the_verb_reads(complete: Complete) -> None:
    assert complete("xalign data read --format t") == ["text", "tsv", "tmx"]
    assert complete("xalign data align --format t") == ["tsv", "tmx"]


def test_what_can_be_fetched_is_offered(complete: Complete) -> None:
    assert complete("xalign data fetch mus") == ["muse", "muse-splits"]
    assert "real/mlm" in complete("xalign data fetch ")


def test_fish_is_given_a_line_for_each_key_however_long_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"extends: tiny/mlm\nnotes: {'many words ' * 30}\n")
    monkeypatch.setenv("_XALIGN_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"xalign plan {recipe} --set not")
    with pytest.raises(SystemExit):
        app(prog_name="xalign")
    assert capsys.readouterr().out == "notes=\tmany words many words many words many words many words [...]\n"


def test_completion_imports_neither_torch_nor_ray() -> None:
    lines = ["pretrain tiny/ --", "evaluate x --task t", "evaluate x --languages d", "plan tiny/mlm --set tr"]
    lines += ["data read --format m", "data fetch m", "study q"]
    code = f"""
import os, sys
from xalign_ray.cli import main
os.environ["_XALIGN_COMPLETE"] = "complete_bash"
sys.argv = ["xalign"]
for line in {lines}:
    os.environ |= {{"COMP_WORDS": "xalign " + line, "COMP_CWORD": str(len(line.split()))}}
    try:
        main()
    except SystemExit:
        pass
    for heavy in ("torch", "ray", "mlflow", "matplotlib", "transformers", "deepspeed", "pyarrow"):
        assert heavy not in sys.modules, (line, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"tatoeba", "de", "train.max_steps=", "moses", "muse", "quickstart"} <= set(done.stdout.split())
