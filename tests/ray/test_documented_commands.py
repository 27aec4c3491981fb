"""Every command of README and docs/how-to, verbatim, in a folder with a blank and a bracket in its name.

A command that is new on a page stands in `RUN`, `LONG` or, with the reason, in `NOT_RUN`. They run in this order: later
ones read what earlier ones made. They join one small cluster; recipes of the package are cut to a few steps in a copy.
"""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from tests.pages import ROOT
from tests.ray import served
from tests.ray.small import copy_demo

pytestmark = pytest.mark.ray

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md")))
BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", re.M | re.S)
PATIENCE_S = 600
FIRST_LINE_S = 30  # two on a quiet machine; tests share this one's cores
SHORT = {
    r"max_steps: \d+": "max_steps: 4",
    r"warmup_steps: \d+": "warmup_steps: 1",
    r"_steps: \d{3}": "_steps: 2",
    "workers: 2": "workers: 1",
}
RUNS = ("tiny-mlm-1a2b3c4d", "tiny-align-mlm-5e6f7a8b")  # as the pages call the runs of these recipes

MLM, ALIGN = (f"runs/{name}" for name in RUNS)
TRAINED_ALIGN = "xalign pretrain tiny/align-mlm --no-ray"  # on no page; `report` compares its run


def commands(page: Path) -> list[str]:
    """The commands of a page without their comments; a loop, and a block that changes the folder, is one."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        uncommented = [re.sub(r"(^|\s+)# .*", "", line).strip() for line in block.replace("\\\n", " ").splitlines()]
        text = ""
        for number, line in enumerate(uncommented):
            text = f"{text}\n{line}".strip()
            is_whole = subprocess.run(["bash", "-n", "-c", text], capture_output=True).returncode == 0
            if text and is_whole and (not text.startswith("cd ") or number == len(uncommented) - 1):
                found.append(re.sub(r" {2,}", " ", text))
                text = ""
        assert not text, f"{page.name}: {text} is no command"
    return list(dict.fromkeys(found))


REASONS = {
    "make": "is the whole project's; CI runs it",
    "network": "needs the hub or a download",
    "server": "names a server, bucket or password of the reader's; tests/ray/test_jobs.py, test_mlflow_postgres.py and "
    "test_runs_in_a_store.py in tests/parity run such commands on servers of their own",
    "gpu": "needs GPUs, or a run that was measured on them; tests/gpu",
    "data": "reads gigabytes of the reader's (DATA); other commands here run the same verbs",
    "hours": "trains for half an hour, as the page says; tests/parity/test_studies_of_papers.py has it in small",
    "like": "is as another command here, on other files",
    "head": "starts a head node on this machine's ports; tests/ray/test_dashboards.py runs it on others",
}
NOT_RUN = {
    "xalign continue intfloat/multilingual-e5-small --pairs pairs/*.csv --test test/*.csv --keep keep/*.csv "
    "--lose-at-most 0.5 --steps 60 --out runs/mine": "network",
    "xalign continue MODEL --pairs mined/mined.en-de.tsv": "like",
    "xalign continue Qwen/Qwen3-Embedding-0.6B --pairs my.csv --lora 16 --plan": "network",
    "xalign continue Qwen/Qwen3-Embedding-0.6B --pairs my.csv --lora 16 --out runs/mine": "network",
    "xalign trim intfloat/multilingual-e5-small --text de.txt --text sw.txt --out e5-small-de-sw": "network",
    "hf download masakhane/masakhaner2 --repo-type dataset --local-dir masakhaner2": "network",
    "xalign tune RUN --task ner --data masakhaner2": "network",
    "xalign tune RUN --task ner --data masakhane/masakhaner2": "network",
    "xalign evaluate ENCODER --task alignment --data RUN": "like",
    "xalign evaluate runs/tiny-mlm-1a2b3c4d --task retrieval --data runs/demo/tatoeba": "like",
    "xalign report runs/tiny-mlm-1a2b3c4d runs/tiny-align-mlm-5e6f7a8b --out comparison": "like",
    "xalign study small --plan --set data.root=DATA": "like",
    "xalign study ppa --scale paper --plan": "like",
    "xalign evaluate ENCODER --task alignment --data terms.en-de.tsv": "like",
    "make quickstart": "make",
    "git clone URL xalign-ray && cd xalign-ray": "network",
    "make install && source .venv/bin/activate": "make",
    "xalign submit --address http://HEAD:8265 pretrain tiny/mlm --set output=/shared/runs "
    "--set track.mlflow=http://MLFLOW:5000": "server",
    "ray start --head --metrics-export-port 8080": "head",
    "xalign plan papers/mbert-mlm --on 8xH100 --rate runs/trial": "gpu",
    "xalign pretrain real/mlm --set data.root=DATA": "data",
    "xalign pretrain real/align-mlm --set data.root=DATA": "data",
    "xalign data stats real/mlm --set data.root=DATA": "data",
    "xalign pretrain small/align-mlm --set data.root=DATA": "data",
    "xalign study derived --set data.root=derived": "hours",
    "xalign study translations --encoder MODEL": "hours",
    "xalign study translations --plan": "data",
    "xalign study align-mlm --scale tiny": "hours",
    "xalign study align --scale two-cores --encoder MODEL --set data.root=DATA --set 'seeds=[0]'": "hours",
    "xalign study align --scale two-cores --encoder MODEL --set data.root=DATA --set 'seeds=[1]' --set "
    "rates.chosen=rates.json": "hours",
    "xalign prepare pieces.yaml --set data.root=DATA": "network",
    "cp -r runs/data/FINGERPRINT/tokenizer pieces": "like",
    "xalign pretrain exchanged.yaml --set data.root=DATA": "network",
    "xalign export runs/exchanged-FINGERPRINT --step 0 --out minilm-exchanged": "like",
    "xalign study align --scale two-cores --encoder minilm-exchanged --set data.root=DATA --set "
    "'rates.learning_rate=[5e-5, 2e-4]'": "hours",
    "xalign report runs/studies/align-two-cores-MODEL --bundle seed0.zip": "like",
    "xalign report seed0.zip runs/studies/align-two-cores-MODEL --bundle align.zip": "like",
    "xalign report scores.csv results --baseline intfloat/multilingual-e5-base": "like",
    "xalign study align --scale two-cores --encoder MODEL --set data.root=DATA": "hours",
    "xalign data fetch papers/weam-de --out DATA": "network",
    "xalign word-map bert-base-multilingual-cased runs/papers-weam-de-1a2b3c4d --data alignment/en-de.frequent.txt "
    "--out map": "network",
    "for name in squad squad-translate-train mlqa xquad; do xalign data fetch $name --out DATA; done": "network",
    "xalign data fetch wikitext-103 --out DATA": "network",
    "xalign pretrain real/mlm --set data.root=DATA --set parallel.workers=4 --set parallel.gpus_per_worker=1": "gpu",
    "make gpu-bundle PYTHON=3.12": "gpu",
    "python tests/gpu/study_bundle.py pack build/gpu-study --data DATA --encoder e5-small": "gpu",
    "python tests/gpu/study_bundle.py unpack build/gpu-study /tmp/gpu-study": "gpu",
    "tests/gpu/study.sh out 360 e5-small": "gpu",
    "tests/gpu/run.sh out 10": "gpu",
    "xalign track replay runs/tiny-mlm-1a2b3c4d --to http://MLFLOW:5000": "server",
    "xalign export runs/tiny-mlm-1a2b3c4d --push-to ORG/NAME": "network",
    'pip install "mlflow==3.17.*" psycopg2-binary boto3': "network",
    "export PGPASSWORD=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... MLFLOW_S3_ENDPOINT_URL=https://S3": "server",
    'mlflow server --host 0.0.0.0 --port 5000 --workers 2 --allowed-hosts "MLFLOW:*,localhost:*,127.0.0.1:*" '
    "--backend-store-uri postgresql+psycopg2://mlflow@DATABASE:5432/mlflow --artifacts-destination "
    "s3://BUCKET/mlflow": "server",
    'pip install "xalign-ray[s3]"': "network",
    "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...": "server",
    "xalign pretrain tiny/mlm --set data.root=s3://BUCKET/corpora --set output=s3://BUCKET/runs": "server",
    "xalign evaluate s3://BUCKET/runs/tiny-mlm-1a2b3c4d --task tatoeba --data s3://BUCKET/corpora/tatoeba": "server",
    "xalign report s3://BUCKET/runs/tiny-mlm-1a2b3c4d s3://BUCKET/runs/tiny-align-mlm-5e6f7a8b": "server",
}

Prepare = Callable[[Path], None]
RETRIEVAL = "\n".join([  # of a page
    "cd DATA && mkdir retrieval",
    "for l in de fr es ru tr zh-Hans ja vi hi; do",
    "paste <(zcat lohelp/test.$l.txt.gz) <(zcat lohelp/test.en.txt.gz) |",
    "awk -F'\\t' -v of=retrieval/tatoeba.${l%-Hans}-en. -v l=${l%-Hans} "
    """'$1 != "" {print $1 > (of l); print $2 > (of "en")}'""",
    "done",
])  # fmt: skip


def link_runs(folder: Path) -> None:
    """The runs under the names that the pages give them."""
    for name in RUNS:
        (found,) = (folder / "runs").glob(f"{name.rpartition('-')[0]}-{'[0-9a-f]' * 8}")
        (folder / "runs" / name).symlink_to(found.name)


def write_wikipedia(folder: Path) -> None:
    page = "<page><title>A{0}</title><ns>0</ns><id>{0}</id><revision><text>Ein Satz {0}.</text></revision></page>"
    pages = "".join(page.format(number) for number in range(1, 9))
    with bz2.open(folder / "dewiki-pages-articles.xml.bz2", "wt") as file:
        file.write(f"<mediawiki>{pages}</mediawiki>")


def write_lohelp(folder: Path) -> None:
    """Columns of paragraphs, one of them missing."""
    (folder / "DATA" / "lohelp").mkdir(parents=True, exist_ok=True)
    for code in ("en", "de", "fr", "es", "ru", "tr", "zh-Hans", "ja", "vi", "hi"):
        with gzip.open(folder / "DATA" / "lohelp" / f"test.{code}.txt.gz", "wt") as file:
            file.write(f"one {code}\n{'' if code == 'hi' else f'two {code}'}\nthree {code}\n")


def write_english(folder: Path) -> None:
    """What a language is derived from: text, and tasks tagged in English, of the embedded world."""
    demo = folder / "runs" / "demo"
    for split in ("train", "dev"):
        shutil.copy(demo / "pos" / f"en.{split}.conllu", folder / f"en_ewt-ud-{split}.conllu")
        (folder / "en").mkdir(exist_ok=True)
        shutil.copy(demo / "ner" / f"{split}-en.tsv", folder / "en" / split)
    for name in ("multinli.train.en.tsv", "dev-en.tsv"):
        shutil.copy(demo / "xnli" / name, folder)
    rows = [json.loads(line) for line in (demo / "wiki" / "en.jsonl").read_text().splitlines()]
    (folder / "wiki.en.txt").write_text("\n\n".join(row["text"] for row in rows[:60]) + "\n")


def write_europarl(folder: Path) -> None:
    (folder / "DATA" / "opus").mkdir(parents=True, exist_ok=True)
    for code, words in (("en", "the house is small"), ("de", "das haus ist klein")):
        text = "\n".join(f"{words} {number}" for number in range(40))
        (folder / "DATA" / "opus" / f"Europarl.de-en.{code}").write_text(f"{text}\n")


def write_questions(folder: Path) -> None:
    (folder / "RUN").symlink_to(MLM)
    for name in ("squad", "xquad"):
        (folder / "DATA" / name).mkdir(parents=True)
    questions = folder / "runs" / "demo" / "mlqa"
    shutil.copy(questions / "train-v1.1.json", folder / "DATA" / "squad")
    shutil.copy(questions / "dev-context-en-question-en.json", folder / "DATA" / "squad" / "dev-v1.1.json")
    for code in ("en", "qdv"):
        test = questions / f"test-context-{code}-question-{code}.json"
        shutil.copy(test, folder / "DATA" / "xquad" / f"xquad.{code}.json")


def write_study(folder: Path) -> None:
    """The page's file, without its released encoder, which is on the hub."""
    text = (ROOT / "docs" / "how-to" / "studies.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n# mine.yaml\n(.*?)^```", text, re.M | re.S)
    kept = [line for line in block.splitlines() if "multilingual" not in line]
    short = (
        "\n".join(kept).replace("seeds: [0, 1, 2]", "seeds: [0]").replace("num_train_epochs: 3", "num_train_epochs: 1")
    )
    (folder / "mine.yaml").write_text(short.replace("seeds: [0, 1]", "seeds: [0]"))


def write_pairs(folder: Path) -> None:
    """An encoder to continue, pairs for it, and pairs that it is scored on."""
    if not (folder / "MODEL").exists():
        (folder / "MODEL").symlink_to(f"{MLM}/export")
    for name, numbers in {"my": range(300), "test": range(300, 340)}.items():
        rows = [f"the house has number {number},das Haus hat die Nummer {number}" for number in numbers]
        (folder / f"{name}.csv").write_text("\n".join(["en,de", *rows, ""]), encoding="utf-8")


def write_news(folder: Path) -> None:
    """Lines of two languages, of which some translate others, and pairs that are known."""
    lines = [(f"the house has number {number}", f"das Haus hat die Nummer {number}") for number in range(60)]
    for side, code in enumerate(("en", "de")):
        (folder / f"news.{code}.txt").write_text("".join(f"{pair[side]}\n" for pair in lines[:40]))
    (folder / "known.en-de.tsv").write_text("".join("\t".join(pair) + "\n" for pair in lines[40:]))


def remove_derived(folder: Path) -> None:
    """What another command derived."""
    shutil.rmtree(folder / "derived", ignore_errors=True)


def remove_mine(folder: Path) -> None:
    """The run that another command put there."""
    shutil.rmtree(folder / "runs" / "mine", ignore_errors=True)


RUN: dict[str, Prepare | None] = {
    "xalign config show tiny/mlm": None,
    "xalign --help": None,
    "xalign plan tiny/mlm --set parallel.workers=4": None,
    "xalign plan papers/xlm --on 8xH100": None,
    "xalign plan papers/mbert-mlm": None,
    "xalign plan papers/mbert-mlm --on 8xH100": None,
    "xalign plan papers/mbert-mlm --on 8xH100 --price H100=2.5": None,
    "xalign plan papers/mbert-mlm --on 8xH100 --rate 180": None,
    "xalign prepare tiny/mlm": None,
    "xalign pretrain tiny/mlm": None,
    "xalign pretrain tiny/mlm --no-ray": None,
    TRAINED_ALIGN: None,
    f"xalign evaluate {MLM} --task tatoeba --data runs/demo/tatoeba": link_runs,
    f"xalign evaluate {MLM} --task cloze --data runs/demo/tatoeba": None,
    "xalign continue MODEL --pairs my.csv --show-recipe > recipe.yaml": write_pairs,
    "xalign continue MODEL --pairs my.csv --plan": None,
    "xalign data mine news.en.txt news.de.txt --languages en,de --model MODEL --dev known.en-de.tsv --out mined":
        write_news,
    f"xalign report {MLM} {ALIGN} --out comparison --by task,family": None,
    f"xalign export {MLM} --step 0 --out untrained/export": None,
    "xalign data read --format wikipedia dewiki-pages-articles.xml.bz2 --languages de | head -3": write_wikipedia,
    "xalign data fetch --list": None,
    RETRIEVAL: write_lohelp,
    "xalign data derive --from wiki.en.txt --changes inv,trans --out derived --pos en_ewt-ud-train.conllu "
    "--pos en_ewt-ud-dev.conllu --ner en/train --ner en/dev --xnli multinli.train.en.tsv --xnli dev-en.tsv "
    "--dictionary-share 0.25 --dictionary-share 0.5": write_english,
    "xalign data align --languages en,de DATA/opus/Europarl.de-en.en DATA/opus/Europarl.de-en.de --out alignment":
        write_europarl,
    "xalign data read --terms --format tsv alignment/en-de.dictionary.tsv --languages en,de": None,
    "xalign study mine.yaml --plan": write_study,
    "xalign study demo-pos --plan": None,
}  # fmt: skip
LONG: dict[str, Prepare | None] = {
    "xalign continue MODEL --pairs my.csv --test test.csv --out runs/mine": write_pairs,
    'xalign export runs/mine --as sentence-transformers --prompt "query=query: " --prompt "passage=passage: " '
    "--out mine": None,
    f"xalign tune {MLM} --task pos --data runs/demo/pos": None,
    "xalign tune RUN --task xquad --data DATA/squad --data DATA/xquad": write_questions,
    "xalign pretrain tiny/mlm --out runs/mine": remove_mine,
    "xalign pretrain tiny/mlm --out runs/mine --set parallel.workers=2": None,
    "xalign pretrain tiny/mlm --set train.max_steps=200": None,
    f"xalign tune {MLM} --task pos --data runs/demo/pos --set num_train_epochs=3 "
    "--set 'learning_rate=[2e-5, 5e-5]'": None,
    "xalign data demo --out demo --derived derived": remove_derived,
    "xalign pretrain derived/tiny-align-mlm-inv": None,
    "xalign study mine.yaml": write_study,
    "xalign study demo-pos --set 'seeds=[0, 1]' --set train.max_steps=100": None,
    "xalign report runs/studies/demo-pos --by family,dictionary": None,
    "xalign report runs/studies/demo-pos --bundle demo-pos.zip": None,
    "xalign verify demo-pos.zip": None,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which commands run, with a small embedded world where they would write the whole one."""
    folder = tmp_path_factory.mktemp("commands") / "a b [1]"
    folder.mkdir()
    copy_demo(folder / "runs" / "demo")
    return folder


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Iterator[dict[str, str]]:  # noqa: ARG001
    """The environment of commands: `xalign` of a copy of the package whose recipes are short, on the tests' cluster."""
    code = tmp_path_factory.mktemp("code")
    shutil.copytree(ROOT / "xalign_ray", code / "xalign_ray", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("base/tiny", "base/derived_tiny"):
        recipe = code / "xalign_ray" / "recipes" / f"{name}.yaml"
        text = recipe.read_text(encoding="utf-8")
        for written, short in SHORT.items():
            text = re.sub(written, short, text)
        recipe.write_text(text, encoding="utf-8")
    length = code / "xalign_ray" / "continuing" / "length.py"
    text = length.read_text(encoding="utf-8")
    assert "FLOOR, CAP = 200," in text
    length.write_text(text.replace("FLOOR, CAP = 200,", "FLOOR, CAP = 4,"), encoding="utf-8")
    command = code / "bin" / "xalign"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS {served.__file__} {code / "door"} "$@"\n')
    command.chmod(0o755)
    found = f"{command.parent}:{os.environ['PATH']}"
    address = ray.get_runtime_context().gcs_address
    given = {"PATH": found, "PYTHONPATH": f"{code}:{ROOT}", "RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"}
    given = os.environ | given | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-P", served.__file__, str(code / "door")]
    with subprocess.Popen(words, env=given, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"serves\n"
        yield given
        server.kill()


def run(command: str, prepare: Prepare | None, place: Path, shell: dict[str, str]) -> None:
    """Runs a command as a reader would, and looks at its first and last lines."""
    if prepare:
        prepare(place)
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=place, env=shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout
    first = process.stdout.readline()
    waited = time.monotonic() - began
    said = first + process.stdout.read()
    assert process.wait(PATIENCE_S) == 0, said
    assert "Traceback" not in said
    assert waited < FIRST_LINE_S, f"{first!r} came after {waited:.0f} s"
    if command.split()[:2][-1] in ENDS_WITH_NEXT:
        assert said.splitlines()[-1].startswith("Next: "), said


ENDS_WITH_NEXT = ("prepare", "pretrain", "export", "evaluate", "tune", "report")


@pytest.mark.parametrize("command", RUN)
def test_documented_command(command: str, place: Path, shell: dict[str, str]) -> None:
    run(command, RUN[command], place, shell)


@pytest.fixture(scope="module")
def trained(place: Path, shell: dict[str, str]) -> None:
    """The two runs that commands read, where the tests that make them were not asked for."""
    if not (place / MLM).exists():
        for command in ("xalign pretrain tiny/mlm", TRAINED_ALIGN):
            run(command, None, place, shell)
        link_runs(place)


@pytest.mark.long
@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("command", LONG)
def test_long_documented_command(command: str, place: Path, shell: dict[str, str]) -> None:
    run(command, LONG[command], place, shell)


def test_every_documented_command_is_run_or_has_a_reason() -> None:
    found = {command for page in PAGES for command in commands(page)}
    known = [*RUN, *LONG, *NOT_RUN]
    assert len(known) == len(set(known))
    assert found - set(known) == set(), "new on a page: add it to RUN, LONG or, with a reason, to NOT_RUN"
    assert set(known) - found == {TRAINED_ALIGN}, "on no page any more"
    assert set(NOT_RUN.values()) == REASONS.keys()
