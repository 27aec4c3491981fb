"""Plug-ins: modules of a user's own whose streams and losses a recipe names, and what is said of those it cannot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from tests.pages import text_of
from tests.unit.streams.random_rows import make_context, make_rows
from xalign_ray.checks import check_recipe
from xalign_ray.config import choices
from xalign_ray.config.choices import MaskedText
from xalign_ray.config.code import plugin_hashes
from xalign_ray.config.derive import method_of
from xalign_ray.config.identity import inputs_of, run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.config.saved import check_identity, describe_saved, earlier_runs, write_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.bert import Bert
from xalign_ray.models.families import find_family
from xalign_ray.models.family import Family
from xalign_ray.models.generic import generic
from xalign_ray.models.refusals import check_family
from xalign_ray.streams.prediction import stream_columns
from xalign_ray.track.events import METRICS, gauge_of, is_known

PLUGIN = '''
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from xalign_ray.config.choices import LossWeight, ObjectiveChoice, StreamChoice, Weight
from xalign_ray.streams.masked import masked_text


class Calm(ObjectiveChoice):
    """A loss."""

    meaning = "how far from calm (nats)"
    metrics: ClassVar[dict[str, str]] = {"train/calm": "calm (0 to 1)"}

    kind: Literal["calm"] = "calm"
    weight: LossWeight = 1.0
    depth: Annotated[int, Field(ge=1)] = 2

    def method(self, stream: Any) -> str:
        return "calm"


class SecondText(StreamChoice):
    """Masked text in the second segment."""

    kind: Literal["second_text"] = "second_text"
    weight: Weight = 1.0


def second_text(stream: SecondText, batch: Any) -> Any:
    columns = masked_text(stream, batch)
    return columns | {"segment_ids": columns["segment_ids"] + 1}
'''
RECIPE = """
extends: tiny/mlm
plugins: [NAME]
streams: [{kind: masked_text}, {kind: second_text, weight: 2}]
objectives: [{kind: masked_lm}, {kind: calm, depth: 3}]
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The plug-in's module, and own.yaml beside it in the current folder; forgotten afterwards."""
    found = f"plugin_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{found}.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(RECIPE.replace("NAME", found), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield found
    choices.PLUGGED_STREAMS.clear()
    choices.PLUGGED_OBJECTIVES.clear()


def refusal(*settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_recipe("own.yaml", settings)
    return str(refused.value)


@pytest.mark.usefixtures("name")
def test_a_recipe_names_the_kinds_of_its_plugin_and_is_read_back_as_it_was() -> None:
    config = load_recipe("own.yaml").config
    stream, loss = config.streams[1], config.objectives[1]
    assert (stream.kind, stream.weight) == ("second_text", 2.0)
    assert loss.model_dump() == {"kind": "calm", "weight": 1.0, "depth": 3}
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert RunConfig.model_validate(config) == config
    assert method_of(config) == "calm"


@pytest.mark.usefixtures("name")
def test_a_stream_is_shown_by_the_function_of_its_kind() -> None:
    own = load_recipe("own.yaml").config.streams[1]
    rows, context = make_rows(8), make_context()
    positions = np.arange(len(rows))
    ours, shown = (stream_columns(stream, rows, positions, context) for stream in (own, MaskedText()))
    assert ours.keys() == shown.keys()
    shown["segment_ids"] = shown["segment_ids"] + 1
    assert all((ours[column] == shown[column]).all() for column in shown)


@pytest.mark.usefixtures("name")
def test_what_a_loss_logs_is_known_once_it_is_loaded() -> None:
    assert not is_known("train/loss_calm")
    load_recipe("own.yaml")
    assert all(is_known(metric) for metric in ("train/loss_calm", "train/calm", *METRICS))
    assert not is_known("train/loss_storm")
    assert gauge_of("train/loss_calm") == ("xalign_train_loss_by_objective", {"objective": "calm"})


@pytest.mark.usefixtures("name")
def test_the_fingerprint_of_a_run_does_not_hold_the_modules_name() -> None:
    config = load_recipe("own.yaml").config
    alone = load_recipe("tiny/mlm").config
    assert run_fingerprint(config, "") != run_fingerprint(alone, "")
    assert run_fingerprint(alone.model_copy(update={"plugins": config.plugins}), "") == run_fingerprint(alone, "")


def test_the_code_of_a_plugin_is_in_the_fingerprint(name: str, tmp_path: Path) -> None:
    """Its own file, files of its package, and the modules next to it that these import, each changed and back again."""
    module, helper, data = tmp_path / f"{name}.py", tmp_path / f"{name}_helper", tmp_path / f"{name}_unused.py"
    module.write_text(f"import {name}_helper.scale\n{PLUGIN}", encoding="utf-8")
    helper.mkdir()
    (helper / "__init__.py").touch()
    (helper / "scale.py").write_text("SCALE = 1\n")
    (helper / "table.json").write_text("[1]\n")
    data.write_text("SCALE = 1\n")

    def found() -> str:
        return run_fingerprint(load_recipe("own.yaml").config, "")

    before = found()
    for path in (module, helper / "scale.py", helper / "table.json"):
        text = path.read_text()
        path.write_text(text.replace("1", "100"))
        assert found() != before, path
        path.write_text(text)
        assert found() == before
    data.write_text("SCALE = 100\n")
    (helper / "__pycache__").mkdir(exist_ok=True)
    (helper / "__pycache__" / "scale.cpython-311.pyc").write_bytes(b"compiled")
    (helper / ".notes").write_text("hidden")
    os.utime(module, (1, 1))
    assert found() == before
    module.write_text(f"from {name}_helper import scale as helped\n{PLUGIN}", encoding="utf-8")
    assert found() != before


def test_the_code_that_computes_a_plugin_is_in_the_fingerprint(name: str, tmp_path: Path) -> None:
    """Of a module that the one of the choice does not import, as it may need torch."""
    elsewhere = tmp_path / f"{name}_loss.py"
    elsewhere.write_text("SCALE = 1\n")
    config = load_recipe("own.yaml").config
    kind = type(config.objectives[1])
    assert f"{name}_loss" not in plugin_hashes(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "computed_by", f"{name}_loss:Loss")
        before = run_fingerprint(config, "")
        elsewhere.write_text("SCALE = 100\n")
        assert run_fingerprint(config, "") != before


def test_a_package_of_plugins_is_known_by_all_of_its_files(name: str, tmp_path: Path) -> None:
    package = tmp_path / f"{name}_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "losses.py").write_text(PLUGIN, encoding="utf-8")
    (package / "weights.txt").write_text("1")
    plugins = f"plugins=[{name}_package.losses]"
    before = run_fingerprint(load_recipe("own.yaml", [plugins]).config, "")
    (package / "weights.txt").write_text("2")
    assert run_fingerprint(load_recipe("own.yaml", [plugins]).config, "") != before


def test_a_run_of_other_plugin_code_is_refused_in_its_folder_and_new_elsewhere(name: str, tmp_path: Path) -> None:
    recipe, folder = load_recipe("own.yaml"), tmp_path / "runs" / "own-00000000"
    old = describe_saved(recipe, inputs_of(recipe.config, ""))
    write_saved(folder, old)
    check_identity(folder, old)
    module = tmp_path / f"{name}.py"
    module.write_text(module.read_text() + "TIMES = 100\n")
    new = describe_saved(recipe, inputs_of(recipe.config, ""))
    with pytest.raises(ConfigError) as refused:
        check_identity(folder, new)
    first, second = (saved["fingerprint"][:8] for saved in (old, new))
    assert str(refused.value) == (
        f"{folder} holds a run of own with fingerprint {first}; this recipe's is {second}. They differ in "
        f"inputs.code.{name}.0. Give another --out, or remove the folder to start over."
    )
    beside = folder.with_name(f"own-{second}")
    assert earlier_runs(beside, new) == f"own-00000000 (unfinished) in inputs.code.{name}.0"
    other_seed = load_recipe("own.yaml", ["seed=5"])
    assert earlier_runs(beside, describe_saved(other_seed, inputs_of(other_seed.config, ""))) == ""
    assert earlier_runs(folder, new) == ""
    assert earlier_runs(folder.with_name(f"other-{second}"), new) == ""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("objectives.1.depth=0", "--set: 'objectives.1.depth' is 0; it must be at least 1."),
        ("objectives.1.dept=3", "unknown key 'objectives.1.dept'. Did you mean 'objectives.1.depth'? Known here:"),
        ("objectives.1.kind=clam", "kind 'clam' is not one of masked_lm, dictionary_alignment, word_exchange, "
         "denoising_alignment, momentum_contrast, sentence_contrast, distillation, calm. Did you mean 'calm'?"),
        ("streams.1.kind=second_tex", "contrasted_pairs, second_text. Did you mean 'second_text'?"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("name")
def test_a_mistake_in_a_kind_of_a_plugin_is_named_as_in_one_of_ours(setting: str, said: str) -> None:
    assert said in refusal(setting)


def test_a_plugin_that_cannot_be_loaded_is_the_only_thing_said(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}_empty.py").write_text("from pathlib import Path\n", encoding="utf-8")
    (tmp_path / f"{name}_loose.py").write_text('class Loose:\n    model_type = "ernie"\n', encoding="utf-8")
    (tmp_path / f"{name}_bare.py").write_text("import no_such_package\n", encoding="utf-8")
    (tmp_path / f"{name}_taken.py").write_text(PLUGIN.replace('"calm"', '"masked_lm"'), encoding="utf-8")
    (tmp_path / f"{name}_second.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / f"{name}_cut.py").write_text("DEPTH = 2\nclass Calm(:\n", encoding="utf-8")
    (tmp_path / f"{name}_null.py").write_text("DEPTH = 2\0\n", encoding="utf-8")
    (tmp_path / f"{name}_helped.py").write_text(f"import {name}_helper\n", encoding="utf-8")
    (tmp_path / f"{name}_helper.py").write_text("\nDEPTH = depth + 1\n", encoding="utf-8")
    said = {
        f"{name}_cut": f"{tmp_path}/{name}_cut.py, line 2: invalid syntax.",
        f"{name}_null": f"{name}_null: source code string cannot contain null bytes.",
        f"{name}_helped": f"{tmp_path}/{name}_helper.py, line 2: NameError: name 'depth' is not defined.",
        "no_such_plugin": f"'plugins.0': there is no module no_such_plugin in {tmp_path} or on Python's path; run the "
        "command in the folder that holds it, or put that folder on PYTHONPATH.",
        "own/loss.py": "'own/loss.py' is no module; write it as in an import, without .py: my_package.my_loss.",
        f"{name}_bare": f"{name}_bare imports no_such_package, which is not installed.",
        f"{name}_loose": "nor a family of encoders",
        f"{name}_empty": f"{name}_empty ({tmp_path}/{name}_empty.py) defines no kind of stream or loss",
        f"{name}_taken": f"{name}_taken.Calm is of kind 'masked_lm', as xalign_ray.config.choices.MaskedLm is.",
    }
    for plugin, sentence in said.items():
        found = refusal(f"plugins=[{plugin}]")
        assert sentence in found
        assert "is not one of" not in found
    assert f"{name}_second.Calm is of kind 'calm', as {name}.Calm is." in refusal(f"plugins=[{name},{name}_second]")


def test_a_module_may_hold_a_family_alone_and_its_code_counts(name: str, tmp_path: Path) -> None:
    block = re.search(r"# ernie.py\n(.*?)```", text_of("add_a_family.md"), re.S)
    assert block
    (tmp_path / f"{name}_ernie.py").write_text(block[1], encoding="utf-8")
    assert find_family("ernie") == generic("ernie")
    config = load_recipe(str(tmp_path / "own.yaml"), [f"plugins=[{name},{name}_ernie]"]).config
    family = find_family("ernie")
    assert family is not None
    assert (family.stock, type(family).__module__) == ("Ernie", f"{name}_ernie")
    assert f"{name}_ernie" in plugin_hashes(config)
    with pytest.raises(ConfigError, match=f"{name}_ernie describes, a plug-in of another recipe here: name it in"):
        check_family(load_recipe("own.yaml").config, family)
    (tmp_path / f"{name}_again.py").write_text(block[1], encoding="utf-8")
    load_recipe("own.yaml", [f"plugins=[{name},{name}_again]"])
    with pytest.raises(ConfigError, match=r"family ernie is described by .*_again\.Ernie and .*; only one can be used"):
        find_family("ernie")


LOSS = """

class CalmLoss(StepObjective):
    def embed(self, micro_step): ...
    def compare(self, vectors, marks, own): ...
    def count(self, batch, parts, step): ...
"""
IMPORT = "from xalign_ray.objectives.objective import Objective, StepObjective\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("del second_text\n", "plugins: there is no NAME:second_text (module 'NAME' has no attribute 'second_text')."),
        ("", "plugins: there is no NAME:CalmLoss (module 'NAME' has no attribute 'CalmLoss')."),
        (IMPORT + "class CalmLoss: ...\n", "NAME:CalmLoss is no Objective (xalign_ray.objectives.objective)."),
        (IMPORT + "class CalmLoss(Objective): ...\n", "NAME:CalmLoss lacks count, forward."),
        (IMPORT + LOSS, "NAME:CalmLoss is a StepObjective: set over_step = True in Calm."),
        (IMPORT + LOSS.replace("StepO", "O") + "    def forward(self, micro_step): ...\n", ""),
    ],
)
def test_a_stream_or_loss_that_lacks_something_is_refused_before_a_cluster_starts(
    written: str, said: str, name: str, tmp_path: Path
) -> None:
    with (tmp_path / f"{name}.py").open("a", encoding="utf-8") as file:
        file.write(written)
    recipe = load_recipe("own.yaml")
    with nullcontext() if not said else pytest.raises(ConfigError, match=re.escape(said.replace("NAME", name))):
        check_recipe(recipe)


def test_a_family_that_lacks_something_says_what() -> None:
    class Misspelt(Bert):
        stock = "Brt"

    class Bare(Family):
        model_type = "bare"

    with pytest.raises(ConfigError, match=r"transformers has no BrtConfig: correct `stock` of .*test_plugins.Misspelt"):
        Misspelt().classes()
    with pytest.raises(ConfigError, match=r"plugins: .*test_plugins.*Bare lacks kept_per_token\."):
        find_family("bare")


@pytest.mark.usefixtures("name")
def test_a_module_in_a_run_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of somebody else's names it in its config.yaml, and is read where it lies."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "theirs.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'was_here')!r}).touch()\n")
    (run / "config.yaml").write_text("recipe: theirs\n")
    monkeypatch.chdir(run)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    with pytest.raises(ConfigError, match="there is no module theirs in "):
        load_recipe(str(tmp_path / "own.yaml"), ["plugins=[theirs]"])
    assert not (tmp_path / "was_here").exists()
    (run / "config.yaml").unlink()
    with pytest.raises(ConfigError, match="defines no kind of stream or loss"):
        load_recipe(str(tmp_path / "own.yaml"), ["plugins=[theirs]"])
    assert (tmp_path / "was_here").exists()


def test_the_command_finds_it_in_the_current_folder_and_imports_no_torch(name: str) -> None:
    code = "import sys; from xalign_ray.cli import app; app(['config', 'show', 'own.yaml'], standalone_mode=False); "
    code += f"assert '{name}' in sys.modules; assert 'torch' not in sys.modules"
    script = f"import sys; sys.path.remove(''); sys.path.append({str(Path(choices.__file__).parents[2])!r}); {code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"kind: calm\n  weight: 1.0\n  depth: 3", done.stdout)
