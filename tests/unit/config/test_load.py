"""Recipes: what overrides what, `--set`, and the recipes of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_ray.config.explain import differences
from xalign_ray.config.load import RECIPES, list_recipes, load_recipe, merge
from xalign_ray.config.training import AdamW, Lamb
from xalign_ray.errors import ConfigError

BASE = """
data: {corpora: [{format: text, language: en, paths: [a]}], max_seq_length: 32}
train: {max_steps: 10, global_batch_size: 8, optimizer: {learning_rate: 0.5}}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "mine.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    write(BASE, "base.yaml")
    return write


def test_precedence_is_default_extends_recipe_set(write) -> None:
    write("train: {max_grad_norm: 2, per_device_batch_size: 2}\nseed: 2", "one.yaml")
    write("train: {max_grad_norm: 3, per_device_batch_size: 3}", "two.yaml")
    mine = write("extends: [base, one, two]\ntrain: {per_device_batch_size: 4, max_steps: 11}")
    config = load_recipe(mine, ["train.max_steps=12"]).config
    assert config.train.eval_steps == 100  # the schema's
    assert config.seed == 2
    assert config.train.max_grad_norm == 3
    assert config.train.per_device_batch_size == 4
    assert config.train.max_steps == 12
    assert config.train.optimizer.learning_rate == 0.5


def test_origins_name_the_file_that_said_it(write) -> None:
    mine = write("extends: base\ntrain: {max_steps: 11}")
    origins = load_recipe(mine, ["seed=3"]).origins
    assert origins["train.max_steps"] == mine
    assert origins["train.global_batch_size"].endswith("/base.yaml")
    assert origins["seed"] == "--set"


def test_mappings_merge_and_lists_replace() -> None:
    assert merge({"a": {"x": 1, "y": [1, 2]}}, {"a": {"y": [3]}}) == {"a": {"x": 1, "y": [3]}}
    assert merge({"a": {"x": 1}}, {"a": None}) == {"a": None}


def test_a_block_of_another_kind_replaces_the_whole_block() -> None:
    under = {"tokenizer": {"kind": "bpe", "vocab_size": 9}}
    over = {"tokenizer": {"kind": "folder", "path": "p"}}
    assert merge(under, over) == over
    assert merge(under, {"tokenizer": {"kind": "bpe", "lowercase": False}})["tokenizer"]["vocab_size"] == 9


def test_an_optimizer_of_another_kind_has_a_rate_of_its_own() -> None:
    adamw, lamb = AdamW().learning_rate, Lamb().learning_rate
    under = {"optimizer": {"learning_rate": 0.003, "beta1": 0.8}}  # of adamw, which need not be written
    assert merge(under, {"optimizer": {"kind": "lamb"}}) == {"optimizer": {"kind": "lamb"}}
    assert merge(under, {"optimizer": {"kind": "adamw"}})["optimizer"]["beta1"] == 0.8
    kind, rate = "train.optimizer.kind=", "train.optimizer.learning_rate=0.5"

    def found(name: str, *settings: str) -> float:
        return load_recipe(name, settings).config.train.optimizer.learning_rate

    assert found("papers/dict-mlm-50", f"{kind}adamw") == adamw != found("papers/dict-mlm-50")
    assert found("tiny/mlm", f"{kind}lamb") == lamb
    assert found("tiny/mlm", rate, f"{kind}lamb") == found("tiny/mlm", f"{kind}lamb", rate) == 0.5
    assert found("tiny/mlm", f"{kind}adamw") == found("tiny/mlm") == 0.003


def test_merging_leaves_its_arguments_alone() -> None:
    under, over = {"a": {"x": 1}}, {"a": {"y": 2}}
    merge(under, over)["a"]["x"] = 5
    assert (under, over) == ({"a": {"x": 1}}, {"a": {"y": 2}})


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("train.optimizer.learning_rate=1e-3", "train.optimizer.learning_rate", 1e-3),
        ("train.max_steps=2e3", "train.max_steps", 2000),
        ("data.corpora.0.language=de", "data.corpora.0.language", "de"),
        ("notes=a=b", "notes", "a=b"),
        ("model.language_embeddings=true", "model.language_embeddings", True),
        ("model.init_from=deepset/gelectra", "model.init_from", "deepset/gelectra"),
        ("objectives=[{kind: masked_lm, weight: 2}]", "objectives.0.weight", 2.0),
        ("track.mlflow=off", "track.mlflow", "off"),
        ("data.corpora.0.language=no", "data.corpora.0.language", "no"),
        ("train.optimizer={learning_rate: 2E-3, epsilon: .5}", "train.optimizer.learning_rate", 2e-3),
        ("notes=-x", "notes", "-x"),
        ("notes=2020-01-01x", "notes", "2020-01-01x"),
        ("notes=my #1", "notes", "my #1"),
        ("notes=[v2] {a}: b", "notes", "[v2] {a}: b"),
        ("notes=*", "notes", "*"),
        ("notes=", "notes", ""),
        ("notes=2020", "notes", "2020"),
        ("notes=~", "notes", "~"),
        ("notes='it''s'", "notes", "it's"),
        ('notes="a" and "b"', "notes", '"a" and "b"'),
        ("output=run [v2] #1", "output", "run [v2] #1"),
        ("output=~/zz", "output", str(Path.home() / "zz")),
        ("data.root=~", "data.root", str(Path.home())),
        ("data.corpora.0.paths.0=~/x #1.txt", "data.corpora.0.paths.0", str(Path.home() / "x #1.txt")),
        ("data.tokenizer={kind: folder, path: ~/t}", "data.tokenizer.path", str(Path.home() / "t")),
        ("model.init_from=~/e: [1]", "model.init_from", str(Path.home() / "e: [1]")),
        ("model.init_from=null", "model.init_from", None),
        ("data.tokenizer={kind: folder, path: x}", "data.tokenizer.path", "x"),
        ("parallel.deepspeed_overrides.zero_optimization.sub_group_size=1",
         "parallel.deepspeed_overrides.zero_optimization.sub_group_size", 1),
        ("sampling.temperature=null", "sampling.temperature", None),
    ],
)  # fmt: skip
def test_set_reads_a_value(write, setting: str, path: str, value: object) -> None:
    at = load_recipe(write("extends: base"), [setting]).config.model_dump()
    for key in path.split("."):
        at = at[int(key)] if key.isdigit() else at[key]
    assert at == value
    assert type(at) is type(value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.max_steps", "--set train.max_steps: write it as key=value, for example --set train.max_steps=100."),
        ("=3", "--set =3: write it as key=value, for example --set train.max_steps=100."),
        ("data.corpora=[", "--set data.corpora=[: the value is not YAML; quote it."),
        ("train.max_steps=5 # few", "--set train.max_steps=5 # few: the value is not YAML; quote it."),
        ("train.max_steps.a=3", "--set train.max_steps.a=3: train.max_steps is a value (10), not a block."),
        ("data.corpora.1.language=de", "--set data.corpora.1.language=de: the list has entries 0 to 0, not '1'."),
        ("data.corpora.x.language=de", "--set data.corpora.x.language=de: the list has entries 0 to 0, not 'x'."),
        ("data.corpora.².language=de", "--set data.corpora.².language=de: the list has entries 0 to 0, not '²'."),
        ("streams.0.weight=2",
         "--set streams.0.weight=2: the recipe leaves streams at its default; write the whole list instead."),
    ],
)  # fmt: skip
def test_set_that_cannot_be_is_refused(write, setting: str, said: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_recipe(write("extends: base"), [setting])
    assert str(told.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1", "{mine} must be a mapping of keys to values; it is a list."),
        ("extends: 5", "{mine}: extends is 5; write the name of a recipe, or a list of names."),
        ("extends: {a: 1}", "{mine}: extends is {{'a': 1}}; write the name of a recipe, or a list of names."),
        ("extends: mine", "{mine} extends itself: mine.yaml -> mine.yaml."),
        ("extends: tiny/mln",
         "{mine} extends 'tiny/mln', neither a file nor a name in the package. Did you mean 'tiny/mlm'? "
         "`xalign config list` names the recipes."),
    ],
)  # fmt: skip
def test_a_file_that_is_no_recipe_is_refused(write, text: str, said: str) -> None:
    mine = write(text)
    with pytest.raises(ConfigError) as told:
        load_recipe(mine)
    assert str(told.value) == said.format(mine=mine)


def test_a_file_that_is_not_yaml_or_not_utf8_is_refused(write) -> None:
    mine = write("a: [")
    with pytest.raises(ConfigError, match=f"^{mine} is not YAML: line 2: while parsing"):
        load_recipe(mine)
    Path(mine).write_bytes(b"notes: \xff\n")
    with pytest.raises(ConfigError, match=f"^{mine} is not YAML: its byte 7 is not UTF-8.$"):
        load_recipe(mine)


def test_a_circle_of_recipes_is_refused(write) -> None:
    write("extends: other", "mine.yaml")
    other = write("extends: mine", "other.yaml")
    with pytest.raises(ConfigError, match=r"extends itself: other\.yaml -> mine\.yaml -> other\.yaml\.$"):
        load_recipe(other)


def test_a_recipe_is_named_after_its_place(write) -> None:
    assert load_recipe("tiny/mlm").name == "tiny/mlm"
    assert load_recipe(write("extends: tiny/mlm")).name == "mine"


def test_the_config_of_a_run_is_a_recipe_of_its_name(write) -> None:
    config = "\nrecipe: tiny/mlm\nfingerprint: 1a2b3c4d\nseed: 7"
    write(f"{BASE}{config}", "config.yaml")
    assert load_recipe(write("extends: config")).config.seed == 7
    saved = load_recipe(write(f"extends: base{config}", "001-tiny-mlm-1a2b3c4d.yaml"), ["train.max_steps=3"])
    assert (saved.name, saved.config.seed, saved.config.train.max_steps) == ("tiny/mlm", 7, 3)
    with pytest.raises(ConfigError, match="unknown key 'recipe'"):
        load_recipe(write("extends: base\nrecipe: tiny/mlm"))


def test_a_recipe_beside_the_file_wins_over_the_package(write) -> None:
    Path(write("extends: base\nseed: 1")).parent.joinpath("tiny").mkdir()
    write("extends: ../base\nseed: 77", "tiny/mlm.yaml")
    assert load_recipe(write("extends: tiny/mlm")).config.seed == 77


def test_a_package_behind_a_link_knows_its_recipes(tmp_path: Path) -> None:
    (tmp_path / "xalign_ray").symlink_to(RECIPES.parent)
    script = "from xalign_ray.config.load import load_recipe; print(load_recipe('tiny/mlm').name)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "tiny/mlm\n", done.stderr


def test_list_names_what_can_be_run() -> None:
    names = list_recipes()
    assert {"tiny/mlm", "tiny/xlm", "tiny/dict-mlm-50", "tiny/align-mlm"} <= set(names)
    assert names == sorted(names)
    assert not [name for name in names if name.startswith(("base/", "studies/"))]


def test_the_two_recipes_of_quickstart_differ_in_their_objectives_only() -> None:
    mlm, align = (load_recipe(name).config.model_dump(mode="json") for name in ("tiny/mlm", "tiny/align-mlm"))
    assert {key.split(".")[0] for key, _, _ in differences(mlm, align)} == {"objectives"}


def test_config_imports_neither_torch_nor_ray() -> None:
    script = (
        "import sys; import xalign_ray.config.choices, xalign_ray.config.derive, xalign_ray.config.explain; "
        "from xalign_ray.config.load import load_recipe; load_recipe('tiny/align-mlm'); "
        "heavy = ('torch', 'ray', 'mlflow', 'transformers', 'numpy', 'pyarrow'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    command, folder = [sys.executable, "-c", script], RECIPES.parents[1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert done.stdout == "[]\n", done.stderr


def test_settings_of_one_recipe_do_not_reach_the_next_of_its_name() -> None:
    before = load_recipe("papers/align-mlm").config
    load_recipe("papers/align-mlm", ["data.tokenizer.path=own"])
    assert load_recipe("papers/align-mlm").config == before
