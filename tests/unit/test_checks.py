"""`config check` opens what a recipe names: sources, tokenizer and encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.whole_words import write_encoder
from xalign_ray.checks import check_named_files, check_recipe
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.errors import ConfigError, XalignError

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe whose text, tokenizer and encoder are there."""
    (tmp_path / "en.txt").write_text("w1 w2\n")
    write_encoder(tmp_path / "encoder", [f"w{number}" for number in range(50)], **SIZES)
    data = {
        "root": str(tmp_path),
        "corpora": [{"format": "text", "language": "en", "paths": ["en.txt"]}],
        "tokenizer": {"kind": "start"},
    }
    train = {"max_steps": 4, "global_batch_size": 4}
    tree = {
        "output": str(tmp_path / "runs"),
        "data": data,
        "train": train,
        "model": {"init_from": f"{tmp_path}/encoder"},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(tree))
    return lambda *settings: load_recipe(str(tmp_path / "own.yaml"), settings)


def opened(recipe: Recipe) -> None:
    check_recipe(recipe)
    check_named_files(recipe)


def test_what_is_there_is_opened_and_nothing_is_written(recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    opened(recipe())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("file", "setting", "said"),
    [
        ("en.txt", "seed=0", r"en\.txt"),
        ("encoder/tokenizer.json", "seed=0", "holds no tokenizer"),
        ("encoder/model.safetensors", "seed=0", r"model\.init_from: .*/encoder holds no weights"),
        ("nothing", "model.init_from=/no/such/encoder", r"model\.init_from: there is no folder '/no/such/encoder'\."),
        ("nothing", "data.corpora.0.paths=[/no/such/file.txt]", r"/no/such/file\.txt"),
        (
            "nothing",
            "data.tokenizer={kind: folder, path: /no/such/tokenizer}",
            r"data\.tokenizer\.path: there is no folder",
        ),
    ],
)
def test_what_is_missing_is_named(
    recipe: Callable[..., Recipe], tmp_path: Path, file: str, setting: str, said: str
) -> None:
    (tmp_path / file).unlink(missing_ok=True)
    with pytest.raises(XalignError, match=said):
        opened(recipe(setting))


@pytest.mark.parametrize("output", ["en.txt", "en.txt/runs/more"])
def test_an_output_that_is_a_file_is_refused(recipe: Callable[..., Recipe], tmp_path: Path, output: str) -> None:
    with pytest.raises(ConfigError, match=rf"output is .*/{output}, and .*/en\.txt is a file; name a folder\."):
        opened(recipe(f"output={tmp_path}/{output}"))


def test_a_root_that_is_not_there_is_said(recipe: Callable[..., Recipe]) -> None:
    assert check_named_files(recipe()) == ""
    assert check_named_files(recipe("data.root=/no/such/folder")) == (
        "Its data.root /no/such/folder is not there: its files were not looked for."
    )


def test_more_workers_than_a_step_can_have_rows_are_refused_before_pairs_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"A step has 64 rows, fewer than parallel.workers 100: some would idle"):
        check_recipe(load_recipe("continue/e5-contrast", ["parallel.workers=100"]))


@pytest.mark.parametrize(("rate", "warns"), [("5", True), ("3e-4", False)])
def test_learning_rate_that_makes_an_encoder_forget_is_reported(
    recipe: Callable[..., Recipe], rate: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    check_recipe(recipe(f"train.optimizer.learning_rate={rate}"))
    assert ("train.optimizer.learning_rate=5 (usual: 2e-5)" in capsys.readouterr().err) == warns
