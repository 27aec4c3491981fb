"""Local paths of recipes, commands and the Python API become absolute once, before a worker gets them."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest

import xalign_ray as xa
from tests.unit.test_cli import Run, run  # noqa: F401 - a fixture
from xalign_ray import evaluation, exports
from xalign_ray.config.derive import with_absolute_paths
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.open import expand
from xalign_ray.tasks.registry import TASKS
from xalign_ray.work.mirror import cache_folder
from xalign_ray.work.storage import absolute_model, absolute_path, hide_places, home_folder, is_folder_name, quoted

HOME = Path.home()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with glob characters in its name, an encoder, a tokenizer and a run."""
    folder = tmp_path / "a b [1]"
    for name in ("encoder", "tokenizer", "runs/mine/export"):
        (folder / name).mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_absolute_path(here: Path) -> None:
    assert absolute_path("runs") == f"{here}/runs"
    assert absolute_path(Path("../x")) == here.parent / "x"
    assert absolute_path("~/x") == f"{HOME}/x"
    assert absolute_path("s3://bucket/x") == "s3://bucket/x"
    assert absolute_path(Path("s3://bucket/x")) == Path("s3:/bucket/x")


def test_model_is_a_folder_or_a_hub_id(here: Path) -> None:
    assert absolute_model("encoder") == f"{here}/encoder"
    assert absolute_model("~") == str(HOME)
    assert absolute_model("bert-base-cased") == "bert-base-cased"
    assert absolute_model("org/name") == "org/name"
    assert absolute_model("run:tiny/mlm") == "run:tiny/mlm"


IDS = ["bert-base-cased", "org/name", "org/name@refs/pr/1", "run:../mine.yaml", "run:/mine/x.yaml", "a_b/c.d@v1"]
FOLDERS = ["nope/", " ", "a b", "a/b/c", "./x", "~/x", "$HOME/x", "mlflow:", "-x", "a--b", "a.txt", "dangling"]


def test_what_cannot_be_a_hub_id_is_a_folder(here: Path) -> None:
    (here / "a.txt").touch()
    (here / "dangling").symlink_to("nowhere")
    assert [name for name in (*IDS, *FOLDERS) if is_folder_name(name)] == FOLDERS


@pytest.mark.parametrize(
    ("written", "why"),
    [("~nobody-here/x", "stands for no home folder"), ("$HOME/x", "variables"), ("/x/${USER}-runs", "variables")],
)
def test_a_path_that_would_be_taken_literally_is_refused(here: Path, written: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.*; write it out"):
        absolute_path(written)
    (here / "$HOME").mkdir()
    assert absolute_path("$HOME") == f"{here}/$HOME"
    assert absolute_path("a$1") == f"{here}/a$1"


def test_a_name_that_begins_with_a_dash_is_shown_as_a_path(here: Path) -> None:
    assert quoted(here / "-x") == "./-x"


RELATIVE = [
    "output=runs",
    "data.root=texts",
    "model.init_from=encoder",
    "data.tokenizer={kind: folder, path: tokenizer}",
    "data.parallel=[{format: tsv, languages: [en, de], paths: [a.tsv], align: 'encoder:encoder'}]",
]


def test_recipe_folders_are_absolute_for_workers(here: Path) -> None:
    config = with_absolute_paths(load_recipe("tiny/mlm", RELATIVE)).config
    found = (config.output, config.data.root, config.model.init_from, config.data.tokenizer.path)  # type: ignore[union-attr]
    assert found == tuple(f"{here}/{name}" for name in ("runs", "texts", "encoder", "tokenizer"))
    assert (config.data.parallel[0].align, config.data.parallel[0].paths) == (f"encoder:{here}/encoder", ("a.tsv",))


NAMES = ["model.init_from=run:tiny/mlm", "data.root=demo", "output=s3://bucket/runs", "data.tokenizer={kind: start}"]


@pytest.mark.usefixtures("here")
def test_recipe_names_and_urls_stay() -> None:
    config = load_recipe("tiny/mlm", NAMES).config
    assert with_absolute_paths(load_recipe("tiny/mlm", NAMES)).config == config


@pytest.mark.usefixtures("here")
def test_home_folder_in_a_recipe_file() -> None:
    Path("mine.yaml").write_text("extends: tiny/mlm\noutput: ~/zz\ndata: {root: ~}\nmodel: {init_from: ~/e}\n")
    with pytest.raises(ConfigError, match=r"'data.root' is None"):  # as YAML has it
        load_recipe("mine.yaml")
    Path("mine.yaml").write_text("extends: tiny/mlm\noutput: ~/zz\nmodel: {init_from: ~/e}\n")
    config = load_recipe("mine.yaml").config
    assert (config.output, config.model.init_from) == (f"{HOME}/zz", f"{HOME}/e")


@pytest.mark.parametrize("key", ["output", "data.root", "model.init_from"])
def test_empty_path_is_refused(key: str) -> None:
    if key == "model.init_from":  # which may be unset
        assert load_recipe("tiny/mlm", [f"{key}="]).config.model.init_from is None
        return
    with pytest.raises(ConfigError, match=f"--set: '{key}': the path is empty; `.` is the current folder."):
        load_recipe("tiny/mlm", [f"{key}="])


CALLS = [
    (["evaluate", "encoder", "--task", "tatoeba", "--data", "texts", "--out", "~/scores"],
     ("encoder", HOME / "scores", "texts")),
    (["evaluate", "org/name", "--task", "tatoeba", "--data", "~/x", "--out", "scores"],
     ("org/name", "scores", HOME / "x")),
]  # fmt: skip


def _absolute(here: Path, given: Any) -> Any:
    return str(here / given) if given in ("encoder",) else here / given if given in ("texts", "scores") else given


@pytest.mark.parametrize(("words", "given"), CALLS, ids=["folder", "hub"])
def test_commands_get_absolute_paths(
    here: Path,
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    given: tuple[Any, ...],
) -> None:
    asked: list[Any] = []

    class Scored:
        needs_data, takes_prompt = True, False

        def evaluate(self, _: str, data: Path, *__: object) -> list[Any]:
            asked.append(data)
            return []

    monkeypatch.setattr(evaluation, "find_encoder", lambda model: asked.append(model) or (model, None))
    monkeypatch.setattr(evaluation, "target_folder", lambda out, *_: asked.append(out) or here / "x")
    monkeypatch.setitem(TASKS, "tatoeba", Scored())
    assert run(*words).code == 0
    assert asked == [_absolute(here, one) for one in given]


def test_python_functions_get_absolute_paths(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(exports, "export", lambda *given: asked.append(given) or given[2])
    xa.export("runs/mine", out="~/export")
    assert [given[:4] for given in asked] == [(here / "runs" / "mine", None, HOME / "export", False)]


def test_model_of_tune_is_absolute_whoever_names_it(here: Path) -> None:
    (here / "encoder" / "config.json").write_text("{}")
    (here / "runs" / "mine" / "export" / "config.json").write_text("{}")
    assert evaluation.find_encoder("encoder") == (f"{here}/encoder", None)
    assert evaluation.find_encoder("runs/mine") == (f"{here}/runs/mine/export", here / "runs" / "mine")
    assert evaluation.find_encoder(f"file://{here}/runs/mine") == evaluation.find_encoder("runs/mine")
    assert evaluation.find_encoder("bert-base-cased") == ("bert-base-cased", None)


def test_patterns_below_a_folder_that_looks_like_one(here: Path) -> None:
    for name in ("x1.txt", "x2.txt", "[y].txt"):
        (here / name).touch()
    assert expand(str(here / "x*.txt")) == [f"{here}/x1.txt", f"{here}/x2.txt"]
    assert expand("x*.txt") == ["x1.txt", "x2.txt"]
    assert expand(str(here / "[y].txt")) == [f"{here}/[y].txt"]
    assert expand("../a b [1]/x[12].txt") == ["../a b [1]/x1.txt", "../a b [1]/x2.txt"]
    with pytest.raises(DataError, match="does not exist"):
        expand(str(here / "z*.txt"))


def test_scores_of_a_model_that_is_no_run_have_a_place_of_their_own(here: Path) -> None:
    (here / "other" / "encoder").mkdir(parents=True)
    places = [
        evaluation.target_folder(None, None, model, "tatoeba")
        for model in (f"{here}/encoder", f"{here}/other/encoder", "org/name")
    ]
    assert len(set(places)) == 3
    assert [path.parent.parent for path in places] == [here / "runs" / "evaluation"] * 3
    assert [path.parent.name.split("-")[0] for path in places] == ["encoder", "encoder", "org"]
    assert evaluation.target_folder(Path("/x"), None, "org/name", "pos") == Path("/x")
    assert evaluation.target_folder(None, here / "runs/mine", "export", "pos") == here / "runs/mine/evaluation/pos"


def test_a_user_without_a_name_and_a_home_folder_is_at_home_in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("XALIGN_CACHE", raising=False)
    assert home_folder() == Path("/")
    assert cache_folder() == Path("/.cache/xalign-ray")
    assert hide_places("/other/place") == "/other/place"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{here}/runs", "./runs"),
        ("{here}", "./"),
        ("{here}/my texts/a.txt", "./my texts/a.txt"),
        ("{here}-old/runs", "~/work-old/runs"),
        ("{here}.old", "~/work.old"),
        ("{home}/models/e5", "~/models/e5"),
        ("output={here}/runs", "output=./runs"),
        ("encoder:{home}/e5", "encoder:~/e5"),
        ('[{{paths: ["{here}/a.txt",{here}/b.txt]}}]', '[{{paths: ["./a.txt",./b.txt]}}]'),
        ("cannot read {here}/x. See `{home}/log`", "cannot read ./x. See `~/log`"),
        ("file://{here}/a", "file://./a"),
        ("sqlite:///{home}/mlflow.db", "sqlite:///~/mlflow.db"),
        ("https://host.org{here}/a", "https://host.org{here}/a"),
        ("s3://bucket{home}/a", "s3://bucket{home}/a"),
        ("my{here}/a", "my{here}/a"),
        ("/other/place", "/other/place"),
        ("query: /x/y ", "query: /x/y "),
        ("intfloat/multilingual-e5-small", "intfloat/multilingual-e5-small"),
    ],
)
def test_places_of_the_machine_as_others_read_them(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "work"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    told, read = (
        [{one.format(here=here, home=tmp_path): (one.format(here=here, home=tmp_path), 7, None)}]
        for one in (text, expected)
    )
    assert hide_places(told) == read
