"""Generated recipes at `config check`: what it calls valid can be planned, what it refuses is told in sentences."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.exits import exit_code
from xalign_ray import cli
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml

RECIPES = 100
LONGEST = 600  # characters of a sentence: what is wrong is quoted, never unfolded; all keys of a block may be listed
STARTS = ("tiny/mlm", "tiny/align-mlm", "tiny/dict-mlm-50", "tiny/xlm", "tiny/weam", "tiny/ppa")

# What is written where another value belongs.
ODD: tuple[Any, ...] = (
    True, False, None, -1, 0, 2**31, 2**63, 10**30, -(10**18), 1.5, -0.0, 1e-320, float("inf"), float("-inf"),
    float("nan"), "", " ", "many", "1e5", "inf", "../..", "<script>", "\u202eabc", "x" * 5000, [], [[]], {},
    {"kind": "mlm"}, {"kind": ["a"]}, [1, "a", None], [[0, 1], [0, 2]], {"a": {"b": {"c": 1}}}, "run:nope",
)  # fmt: skip
CODES = ("tl", "xx", "<script>", "english", "zh_CN", "und", "en-x-inv", "no", "de", "EN", "x" * 300, "")
# Keys that a user means to set, with values that may or may not do.
MEANT: dict[str, tuple[Any, ...]] = {
    "train.max_steps": (1, 50, 1e4, "1e4", "50", True, 0, 1e400),
    "train.global_batch_size": (1, 7, 64, 4096, 10**12),
    "train.per_device_batch_size": (1, 3, 2**40),
    "train.optimizer": (
        {"learning_rate": 1e-3}, {"learning_rate": 1e400}, {"kind": "lamb"}, {"kind": "sgd"}, {"beta1": 2},
    ),
    "train.bf16": (True, False, "yes"),
    "masking.mlm_probability": (0.3, [[0, 0.1], [100, 0.4]], [[5, 0.1], [5, 0.2]], 1.0, "0.3"),
    "sampling": ({"alpha": 0.3}, {"temperature": 5}, {"alpha": 0.3, "temperature": 5}, {"unit": "words"}),
    "parallel.workers": (1, 3, 64, 10**6),
    "parallel.zero_stage": (0, 1, 3, 4, True),
    "parallel.deepspeed_overrides": (
        {"steps_per_print": 5}, {"zero_optimization": {"stage": 3}}, {"zero_optimization": {"stge": 3}}, {"fp16": 3},
        {"zero_optimization": 3}, {"zero_optimization": {"reduce_bucket_size": 10**6}}, {"train_batch_size": 7},
    ),
    "model": ({"num_hidden_layers": 3}, {"hidden_size": 97}, {"family": "modernbert"}, {"init_from": "run:tiny/mlm"},
              {"init_from": "run:nope"}, {"family": "t5"}, {"conditioned_head": True}),
    "data.tokenizer": ({"kind": "bpe", "vocab_size": 64}, {"kind": "start"}, {"kind": "folder"}, {"kind": 3}),
    "data.max_seq_length": (8, 512, 9000, 7),
    "track.report_to": ([], ["tensorboard"], ["wandb", "tensorboard"], ["aim"], "wandb"),
    "track.mlflow": ("off", "sqlite", "http://localhost:5000", "ftp://host/x", "postgresql+psycopg2://h/db", "x://"),
    "streams": ([{"kind": "masked_text"}, {"kind": "masked_pairs", "weight": 2}], [{"kind": "aligned_pairs"}], []),
    "objectives": ([{"kind": "masked_lm", "weight": [[0, 1], [9, 2]]}], [{"kind": "momentum_contrast"}], [3]),
    "seed": (0, 2**62, -1, 1.0, "7"),
    "notes": ("free text: yes", "2024-99-99", 3),
    "checkpoint": ({"save_steps": 10}, {"save_total_limit": 0}, None),
}  # fmt: skip


def leaves(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a tree, blocks and lists included."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return ([at] if at else []) + [place for key, value in inner for place in leaves(value, (*at, key))]


def put(tree: Any, place: tuple[Any, ...], value: Any) -> None:
    """Puts a value at a place; blocks on the way that are not there are made."""
    for key in place[:-1]:
        tree = tree[key] if isinstance(tree, list) else tree.setdefault(key, {})
        if not isinstance(tree, dict | list):
            return
    tree[place[-1]] = value


def set_meant(draw: random.Random, tree: dict[str, Any]) -> None:
    key = draw.choice(list(MEANT))
    put(tree, tuple(key.split(".")), draw.choice(MEANT[key]))


def set_odd(draw: random.Random, tree: dict[str, Any]) -> None:
    put(tree, draw.choice(leaves(tree)), draw.choice(ODD))


def set_code(draw: random.Random, tree: dict[str, Any]) -> None:
    put(tree, ("data", "corpora", 0, "language"), draw.choice(CODES))


def add_unknown(draw: random.Random, tree: dict[str, Any]) -> None:
    place = draw.choice([place for place in leaves(tree) if isinstance(place[-1], str)])
    put(tree, (*place[:-1], draw.choice([f"{place[-1]}z", "kind", 7, "", "a.b"])), draw.choice(ODD))


def remove(draw: random.Random, tree: dict[str, Any]) -> None:
    *parents, last = draw.choice(leaves(tree))
    at: Any = tree
    for key in parents:
        at = at[key]
    del at[last]


def _repeated(draw: random.Random, text: str) -> str:
    blocks = [line for line in text.splitlines() if line and not line.startswith((" ", "-"))]
    return f"{text}\n{draw.choice(blocks).partition(':')[0]}: 3\n"


def _nested(draw: random.Random, text: str) -> str:
    depth = draw.choice([10, 40, 100_000])
    return f"{text}\nnotes: {'[' * depth}{']' * depth}\n"


TEXTS: tuple[Callable[[random.Random, str], str], ...] = (  # what only a text can have
    _repeated,
    _nested,
    lambda _, text: f"{text}\nnotes: &a [*a]\n",
    lambda _, text: f"{text}\nnotes: [&a [x, x, x], &b [*a, *a, *a], &c [*b, *b, *b], *c]\n",
    lambda _, text: f"{text}\nnotes: !!python/object:os.system x\n",
    lambda _, text: f"{text}\nseed: {'9' * 5000}\n",
    lambda draw, text: text[: draw.randrange(len(text))],
    lambda draw, text: text.replace(":", draw.choice(["", "::", ":\t", ":\x00"]), 1),
    lambda _, text: f"- {text!r}",
)
TREES = (set_meant, set_meant, set_meant, set_meant, set_meant, set_odd, set_odd, set_code, add_unknown, remove)


def generate(number: int, start: dict[str, Any]) -> str:
    """The recipe of a number, as YAML."""
    draw = random.Random(f"recipe/{number}")
    for change in draw.choices(TREES, k=draw.choice((1, 1, 1, 2))):
        change(draw, start)
    text = yaml.dump(start, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=10**9)
    return draw.choice(TEXTS)(draw, text) if draw.random() < 0.15 else text


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The exit code and what was said, of the verb in this process; whatever is no sentence is raised."""
    code = exit_code(lambda: cli.app(list(words), prog_name="xalign"))
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The generated recipes; each is a whole one, so that every key is written in its file."""
    folder = tmp_path_factory.mktemp("recipes")
    starts = [load_recipe(name).config.model_dump(mode="json") for name in STARTS]
    paths = [folder / f"{number}.yaml" for number in range(RECIPES)]
    for number, path in enumerate(paths):
        start = deepcopy(starts[number % len(starts)])
        path.write_text(generate(number, start), encoding="utf-8")
    return paths


def test_what_is_called_valid_can_be_planned_and_what_is_refused_is_told_in_sentences(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    counted: Counter[str] = Counter()
    wrong: list[tuple[str, str]] = []
    for path in files:
        code, out, err = call(capsys, "config", "check", str(path))
        if code == 0:
            assert out.startswith(f"{path} is valid.\n")  # and that a root is not there
            assert all(line.endswith(" It is used unchanged.") for line in err.splitlines()), "an unknown code is said"
            assert "deepspeed" in call(capsys, "plan", str(path))[1]
        elif code != 2 or out or not all(names_its_place(line, path) for line in err.splitlines()):
            wrong.append((path.name, err))
        counted["valid" if code == 0 else "refused"] += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{RECIPES} recipes: {dict(counted)}\n")
    assert wrong == []
    assert counted["valid"] + counted["refused"] == RECIPES
    assert counted["valid"] >= 20, counted
    assert counted["refused"] >= 40, counted


def names_its_place(line: str, path: Path) -> bool:
    """Whether it is a sentence that names a key of the tree or a line of the file, or says that there are no keys."""
    said = line.replace(str(path), "")
    named = [*RunConfig.model_fields, "stream ", "objective ", ": line ", "position ", "must be a mapping of keys"]
    return len(said) < LONGEST and any(name in said for name in named)


@pytest.mark.parametrize("number", [0, 3])
def test_the_command_says_the_same(files: list[Path], capsys: pytest.CaptureFixture[str], number: int) -> None:
    words = ["config", "check", str(files[number])]
    called = subprocess.run(
        [sys.executable, "-c", "from xalign_ray.cli import main; main()", *words], capture_output=True, text=True
    )
    assert (called.returncode, called.stdout, called.stderr) == call(capsys, *words)


def test_the_recipe_of_a_number_is_always_the_same() -> None:
    start = load_recipe(STARTS[0]).config.model_dump(mode="json")
    first, second = (generate(5, deepcopy(start)) for _ in range(2))
    assert first == second


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: {max_steps: 3, max_steps: 4}", "line 2: the key 'max_steps' stands twice, first in line 2; keep one"),
        ("seed: 1\nseed: 1", "line 3: the key 'seed' stands twice, first in line 2; keep one"),
        (BOMB, "line 7: more than 100,000 values, aliases unfolded"),
        ("notes: &n [*n]", "line 2: '*n' stands inside its anchor's value; write it out"),
        (
            "data: &a [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1 or ''}]\n" for n in range(1, 60)),
            "line 33: more than 32 blocks inside each other",
        ),
        ("notes: " + "[" * 99, "line 2: more than 32 blocks inside each other"),
        ("seed: !!int 3", "line 2: tags such as 'tag:yaml.org,2002:int' mean nothing here; leave it out"),
    ],
)
def test_what_no_recipe_may_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"extends: tiny/mlm\n{text}\n")
    assert call(capsys, "config", "check", str(path)) == (2, "", f"xalign: {path} is not YAML: {said}\n")


def test_an_alias_that_ends_is_what_it_stands_for() -> None:
    assert parse_yaml("a: &x {b: [1, 2]}\nc: [*x, *x]") == {"a": {"b": [1, 2]}, "c": [{"b": [1, 2]}] * 2}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.corpora.0.language=<script>", "data.corpora.0: '<script>' is not a language code such as 'en'"),
        (
            "train.optimizer.learning_rate=1e400",
            "'train.optimizer.learning_rate' is inf; it must be a finite number",
        ),
        (
            "train.optimizer.learning_rate=nan",
            "'train.optimizer.learning_rate' is 'nan'; it must be a finite number",
        ),
        ("train.max_steps=true", "'train.max_steps' is True; it must be a number, not true or false"),
        ("parallel.zero_stage=true", "'parallel.zero_stage' is True; it must be a number, not true or false"),
        (f"seed={10**30}", "'seed' is 1e+30; it must be a whole number."),
        ("model.init_from=run:nope", "model.init_from is 'run:nope'. There is no recipe 'nope'"),
        ("track.mlflow=ftp://host/x", "'track.mlflow': 'ftp://host/x' is no place that MLflow writes to: http, "),
        ("parallel.deepspeed_overrides={fp16: 3}", "parallel.deepspeed_overrides: DeepSpeed cannot read it: "),
        ("parallel.deepspeed_overrides={zero_optimization: {stage: 1}}", "set parallel.zero_stage instead"),
    ],
)
def test_what_later_verbs_would_refuse_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    for verb in (["config", "check"], ["plan"]):
        code, out, err = call(capsys, *verb, "tiny/align-mlm", "--set", setting)
        assert (code, out) == (2, "")
        assert said in err


def test_a_recipe_that_continues_itself_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(f"extends: tiny/mlm\nmodel: {{init_from: 'run:{two}'}}\ndata: {{tokenizer: {{kind: start}}}}\n")
    two.write_text(f"extends: tiny/mlm\nmodel: {{init_from: 'run:{one}'}}\ndata: {{tokenizer: {{kind: start}}}}\n")
    code, _, err = call(capsys, "config", "check", str(one))
    assert (code, err) == (2, f"xalign: model.init_from is 'run:{two}': {two} would continue itself.\n")


def test_tagalog_is_a_language_as_wikipedia_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "config", "check", "papers/mbert-mlm")[0] == 0
    assert "tl" in load_recipe("papers/mbert-mlm").config.languages
