"""The command line: what it says, where, with which exit code, and what it does not have to import for that."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from xalign_ray.cli import CACHES, main
from xalign_ray.config.load import list_recipes
from xalign_ray.errors import explain, written_in


@dataclass(frozen=True)
class Said:
    """How a call ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the command line in this process, as the shell would."""

    def call(*words: str, verb: str | None = None) -> Said:
        monkeypatch.setattr(sys, "argv", ["xalign", *words])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main(verb) if verb else main()
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_without_a_verb_it_shows_the_help_and_exits_2(run: Run) -> None:
    said = run()
    assert said.code == 2
    assert "pretrain" in said.out + said.err


def test_what_succeeds_exits_0_and_answers_on_stdout(run: Run) -> None:
    said = run("config", "check", "tiny/mlm")
    assert (said.code, said.out, said.err) == (0, "tiny/mlm is valid.\n", "")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("pretrian tiny/mlm", 2, "pretrian"),
        ("plan tiny/mlm --steps 3", 2, "--steps"),
        ("tune runs/tiny-mlm --data {folder}", 2, "Missing option '--task'"),
        ("tune runs/tiny-mlm --task pos", 2, "Missing option '--data'"),
        ("config show tiny/mlm --set train.max_steps", 2, "xalign: --set train.max_steps: write it as key=value"),
        *(
            (f"tune no-model --task pos --data {{folder}} --set '{setting}'", 2,
             f"xalign: --set {setting}: write it as key=value, for example --set learning_rate=2e-5.")
            for setting in ("learning_rate=", "learning_rate", "=3", "seed= ")
        ),
        ("data align a.en a.de --languages en,de --out nowhere --aligner hnm", 2,
         "xalign: unknown aligner 'hnm'. Did you mean 'hmm'? Known: hmm, encoder.\n"),
        ("data align a.en a.de --languages en,de --out nowhere --format mosses", 2,
         "xalign: 'format' is 'mosses'; it must be one of moses, csv, tsv, xlsx, jsonl, json, parquet, arrow, tmx, "
         "xliff, po, opus, hf. Did you mean 'moses'?\n"),
        ("plan tiny/mml", 2,
         "xalign: There is no recipe 'tiny/mml', neither a file nor a name in the package. Did you mean 'tiny/mlm'? "
         "`xalign config list` names the recipes.\n"),
        ("export {folder}", 1, "xalign: {folder} is not a run folder: it has no config.yaml of a run.\n"),
        ("evaluate some/model --task tatoba --out {folder}", 2,
         "xalign: unknown task 'tatoba'. Did you mean 'tatoeba'? Known: "),
        ("evaluate some/model --task tatoeba --out {folder}", 2, "xalign: --data is needed: the files of tatoeba.\n"),
        ("track replay {folder} --to sqlite", 1, "xalign: {folder} holds no run that has started"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence_on_stderr_and_an_exit_code(
    run: Run, tmp_path: Path, words: str, code: int, sentence: str
) -> None:
    said = run(*shlex.split(words.format(folder=tmp_path)))
    assert (said.code, said.out) == (code, "")
    assert sentence.format(folder=tmp_path) in said.err
    assert "Traceback" not in said.err
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("verb", ["prepare", "plan", "pretrain"])
def test_a_typo_in_a_recipe_names_file_key_and_nearest_before_anything_starts(
    run: Run, tmp_path: Path, verb: str
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: tiny/mlm\ntrain: {stepz: 5}\n")
    said = run(verb, str(recipe))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(
        f"xalign: {recipe}: unknown key 'train.stepz'. Did you mean 'train.max_steps'? Known here: "
    )
    assert list(tmp_path.iterdir()) == [recipe]


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("file/inside", "Not a directory. "),
        ("x" * 300, "File name too long. Give a shorter name.\n"),
        ("circle/inside", "Too many levels of symbolic links. Links lead in a circle there: remove one.\n"),
        ("/proc/xalign", "/proc/xalign"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(run: Run, tmp_path: Path, out: str, says: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "circle").symlink_to("circle")
    said = run("data", "demo", "--out", str(tmp_path / out))
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("xalign: /")
    assert says in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "", "a.txt"), "a.txt: Too many open files. Raise the limit (`ulimit -n 65536`) and "),
        (OSError(errno.ESTALE, "", "a.txt"), "a.txt: Stale file handle. The disk or its server fails: look at it "),
        (OSError(errno.ENOTEMPTY, "", "a"), "a: Directory not empty. Remove what is there and rerun the command."),
        (OSError(errno.ENOMEM, ""), "The system says: Cannot allocate memory. End other processes, or raise the "),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, ""),
            "The system says: Connection refused. Check the network ",
        ),
        (OSError(errno.EACCES, "", "a.txt"), "a.txt: Permission denied. Give a place that can be read and written, "),
        (OSError(errno.ENOSPC, ""), "/out: No space left on device. Make room, or raise the limit, and give it again."),
        # of tokenizers and safetensors
        (Exception("No space left on device (os error 28)"), "/out: No space left on device. Make room, or raise "),
        (Exception("Disk quota exceeded (os error 122)"), "/out: Disk quota exceeded. Make room, or raise the "),
        (
            UnicodeEncodeError("utf-8", '{"a": "/x/gr\udcf6\udcdfe 1/b", "b": 1}', 12, 14, "surrogates not allowed"),
            "/x/gr\\udcf6\\udcdfe 1/b is a name that is not UTF-8. Rename the file or folder, ",
        ),
        (UnicodeEncodeError("utf-8", "cut \ud83d", 4, 5, "surrogates not allowed"), ""),
        (ValueError("a mistake of our own"), ""),
    ],
)
def test_what_the_system_says_is_told_with_what_helps(error: Exception, said: str) -> None:
    with suppress(Exception), written_in(Path("/out")):
        raise error
    assert (explain(error) or "").startswith(said)
    assert bool(said) == bool(explain(error))


def test_a_current_folder_that_was_removed_is_said(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = run("config", "check", "tiny/mlm")
    assert (said.code, said.out) == (1, "")
    assert said.err == ("xalign: The current folder was removed. Change to one that is there and rerun the command.\n")


@pytest.mark.parametrize("name", CACHES)
def test_a_relative_cache_is_the_same_folder_for_workers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", f"{tmp_path}/ann")
    for written, meant in (("cache/x", f"{tmp_path}/cache/x"), ("~/x", f"{tmp_path}/ann/x"), ("/x", "/x"), ("", "")):
        monkeypatch.setenv(name, written)
        assert run("--version").code == 0
        assert os.environ[name] == meant


def test_every_recipe_of_the_package_is_valid_and_can_be_planned(run: Run) -> None:
    names = list_recipes()
    assert {"tiny/mlm", "tiny/xlm", "tiny/dict-mlm-50", "tiny/align-mlm"} <= set(names)
    for name in names:
        said = run("config", "check", name)
        assert (said.code, said.out.splitlines()[0]) == (0, f"{name} is valid.")
        assert all(line.endswith(" It is used unchanged.") for line in said.err.splitlines()), "a code no registry has"
        assert "iB a worker: weights " in run("plan", name).out


def test_the_schema_is_json_for_editors(run: Run) -> None:
    schema = json.loads(run("config", "schema").out)
    assert schema["properties"]["train"]
    assert schema["additionalProperties"] is False


def test_data_read_prints_json_lines(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "en-de.txt"
    path.write_text("house\tHaus\nlonely\n")
    said = run("data", "read", "--format", "muse", str(path), "--languages", "en,de")
    assert said.code == 0
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {"kind": "entry", "languages": ["en", "de"], "words": ["house", "Haus"], "source": str(path), "line": 1},
        {"kind": "bad_row", "source": str(path), "line": 2, "reason": "dictionary line has one column"},
    ]


def test_a_job_gives_the_verb_and_the_command_line_the_rest(run: Run) -> None:
    said = run("tiny/mml", verb="plan")
    assert said.code == 2
    assert said.err.startswith("xalign: There is no recipe 'tiny/mml'")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["prepare", "tiny/mlm", "--set", "output=runs"], "output is 'runs'"),
        (["pretrain", "tiny/mlm"], "output is 'runs'"),
        (["pretrain", "tiny/mlm", "--set", "output=/shared/runs", "--out", "mine"], "--out is 'mine'"),
        (["evaluate", "some/model", "--task", "tatoeba", "--out", "scores"], "--out is 'scores'"),
    ],
)
def test_in_a_ray_job_a_relative_output_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR  # Ray sets it in the driver of a job

    monkeypatch.setenv(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}")
    said = run(*words)
    assert said.code == 2
    assert said.err == (
        f"xalign: {named}: in a Ray job a relative path lies in the uploaded copy of the code, which is removed after "
        "the job. Give an absolute one that all nodes see, for example --set output=/shared/runs.\n"
    )


def test_help_and_config_import_neither_torch_nor_ray() -> None:
    calls = [["--help"], ["config", "--help"], ["config", "list"], ["config", "schema"]]
    calls += [["config", verb, "tiny/dict-mlm-50"] for verb in ("show", "check")]
    calls += [["config", "diff", "tiny/mlm", "tiny/xlm"], ["plan", "tiny/no-such-recipe"], ["pretrain", "tiny/mml"]]
    code = f"""
import sys
from xalign_ray.cli import main
for words in {calls}:
    sys.argv = ["xalign", *words]
    try:
        main()
    except SystemExit:
        pass
    for heavy in ("torch", "ray", "mlflow", "matplotlib", "transformers", "deepspeed"):
        assert heavy not in sys.modules, (words, heavy)
sys.stderr.write("none of them")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("none of them")


@pytest.mark.parametrize(
    ("redirection", "encoding", "shown"),
    [
        (">&-", "utf-8", ""),
        ("2>&-", "utf-8", "H\u00e4user \u4e2d"),
        ("", "ascii", "H\u00e4user \u4e2d"),
        ("| iconv -f latin1 -t utf-8", "latin-1", "H\u00e4user \\u4e2d"),
    ],
)
def test_output_that_is_closed_or_of_few_characters_ends_no_verb(
    tmp_path: Path, redirection: str, encoding: str, shown: str
) -> None:
    (tmp_path / "a.tsv").write_text("en\tde\nhouse\tH\u00e4user \u4e2d\n", encoding="utf-8")
    words = f"data read {tmp_path / 'a.tsv'} --format tsv --languages en,de".split()
    script = f'set -o pipefail; "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-m", "xalign_ray", *words],
        env=os.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, shown in done.stdout) == (0, True), done
