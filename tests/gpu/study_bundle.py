"""Packs a study of a released encoder for a GPU machine without network, and unpacks it there.

`python tests/gpu/study_bundle.py pack OUT --data DATA --encoder FOLDER`, with the other machine's Python version and
torch: shards depend on Python's Unicode tables. Into OUT/part1 and so on, each at most 50 MiB: what the package needs
with Ray, the data, shards of all arms but those that a teacher's vectors make large, and the encoder in fp16 with the
pieces that the data use, which cut every line as its whole vocabulary does. Then, there, `... unpack PARTS BUNDLE` and
tests/gpu/study.sh.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

STUDY = "align/two-cores"
PART_BYTES = 50 << 20
# Of Ray: what no Python program here runs. Its compiled files lose their symbols, 40 MB.
UNUSED = ("ray/jars", "ray/dashboard/client", "ray/rllib")
STRIPPED = ("ray/_raylet.so", "ray/core/src/ray/raylet/raylet", "ray/core/src/ray/gcs/gcs_server")
PACKED = "packed-{name}"  # an encoder in fp16


def lines_of(data: Path) -> Iterator[str]:
    """Every text of a data folder as its readers take it: lines, fields between tabs, words of trees, dictionaries."""
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            for line in file:
                text = line.rstrip("\n")
                if path.suffix == ".conllu" and text.startswith("# text = "):
                    yield text.removeprefix("# text = ")
                elif "dictionaries" in path.parts:
                    yield from text.split()
                elif not text.startswith("#"):
                    yield from text.split("\t")


def trim(encoder: Path, data: Path, out: Path) -> None:
    """An encoder of transformers with the pieces that the data use; refuses if any line is cut in another way."""
    import torch
    from safetensors.torch import load_file, save_file

    from xalign_ray.vocabulary import surgery
    from xalign_ray.vocabulary.tokenizer_folder import framed, open_tokenizer, save_tokenizer

    whole = framed(open_tokenizer(str(encoder)))
    trimmed, rows, _ = surgery.trim(whole, lines_of(data), 1)
    keep = rows.olds.tolist()
    new_ids = {old: new for new, old in enumerate(keep)}
    other, lines = 0, lines_of(data)
    while some := list(islice(lines, 10_000)):
        pairs = zip(*(one.backend_tokenizer.encode_batch(some) for one in (whole, trimmed)), strict=True)
        other += sum([new_ids.get(number) for number in one.ids] != two.ids for one, two in pairs)
    if other:
        raise SystemExit(f"{other} lines are cut in another way.")
    weights = load_file(encoder / "model.safetensors")
    words = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[words] = weights[words][torch.as_tensor(keep)]
    out.mkdir(parents=True)
    save_tokenizer(trimmed, out)
    halved = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    save_file({name: value.contiguous() for name, value in halved.items()}, out / "model.safetensors", {"format": "pt"})
    config = json.loads((encoder / "config.json").read_text())
    config |= {"vocab_size": len(keep), "pad_token_id": trimmed.pad_token_id}
    (out / "config.json").write_text(json.dumps(config, indent=2))


def widen(packed: Path, out: Path) -> None:
    """The encoder in fp32, the same to the byte wherever it is unpacked."""
    from safetensors.torch import load_file, save_file

    if not (out / "model.safetensors").is_file():
        shutil.copytree(packed, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
        weights = load_file(packed / "model.safetensors")
        whole = {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
        save_file(whole, out / "model.safetensors", {"format": "pt"})


def install(python: str, wheels: Path, site: Path) -> None:
    """What the package needs with Ray, and is not on such machines."""
    import bundle

    bundle.LEFT_OUT -= {"ray", "scipy", "matplotlib"}  # a study has cells on Ray, intervals and figures
    wheels.mkdir(parents=True)
    bundle.collect(python, wheels)
    given = ["--no-index", "--no-deps", "--no-compile", "--python-version", python, "--only-binary=:all:"]
    platforms = [word for platform in bundle.PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "install", "-q", *given, *platforms, "--target", str(site)]
    subprocess.run([*pip, *map(str, wheels.glob("*.whl"))], check=True)
    for folder in UNUSED:
        shutil.rmtree(site / folder, ignore_errors=True)
    subprocess.run(["strip", "--strip-unneeded", *(str(site / name) for name in STRIPPED)], check=True)


def prepare(encoder: Path, data: Path, runs: Path) -> None:
    """The shards of the study's arms; those with a teacher are made on the machine, beside the first pretrainings."""
    from xalign_ray import pretraining
    from xalign_ray.studies.declared import load_study
    from xalign_ray.studies.rates import trial_study
    from xalign_ray.studies.study import make_plan

    study = load_study(STUDY, [f"data.root={data}", "mlflow=off"], str(encoder))
    for cell in make_plan(trial_study(study), runs).pretrainings:
        if not cell.recipe.config.data.teacher:
            pretraining.prepare(cell.recipe)


def write_parts(folder: Path, names: Iterable[str], out: Path) -> None:
    """Archives of some folders, cut into parts."""
    with ThreadPoolExecutor() as threads:
        archives = [*threads.map(lambda name: _archive(folder, name), names)]
    content = b"".join(path.stat().st_size.to_bytes(8, "big") + path.read_bytes() for path in archives)
    starts = range(0, len(content), PART_BYTES)
    bundle = hashlib.sha256(content).hexdigest()[:8]
    for number, start in enumerate(starts, 1):
        part = out / f"part{number}"
        part.mkdir(parents=True, exist_ok=True)
        for old in part.glob("*-of-*"):
            old.unlink()
        (part / f"{bundle}-{number:02}-of-{len(starts):02}").write_bytes(content[start : start + PART_BYTES])


def _archive(folder: Path, name: str) -> Path:
    path = folder / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=3) as archive:
        archive.add(folder / name, name)
    return path


def unpack(parts: Sequence[Path], folder: Path) -> None:
    """The folders of all parts, archive by archive side by side, and encoders in fp32."""
    chunks = sorted((chunk for part in parts for chunk in part.glob("*-of-*")), key=lambda chunk: chunk.name)
    named = chunks[0].name.rpartition("-")[2] if chunks else "0"
    if len(chunks) != int(named) or len({chunk.name.partition("-")[0] for chunk in chunks}) != 1:
        there = ", ".join(chunk.name for chunk in chunks) or "none"
        raise SystemExit(
            f"These are not all parts of one bundle: {there}. Copy what is missing; a bundle that was packed again is "
            "another one."
        )
    content = b"".join(chunk.read_bytes() for chunk in chunks)
    archives, start = [], 0
    folder.mkdir(parents=True, exist_ok=True)
    while start < len(content):
        size = int.from_bytes(content[start : start + 8], "big")
        archives.append(folder / f"{len(archives)}.tar.xz")
        archives[-1].write_bytes(content[start + 8 : start + 8 + size])
        start += 8 + size
    extract = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='fully_trusted')"
    running = [subprocess.Popen([sys.executable, "-c", extract, str(path), str(folder)]) for path in archives]
    codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit("An archive cannot be unpacked: a part is damaged, or the disk is full.")
    for packed in folder.glob(PACKED.format(name="*")):
        widen(packed, folder / packed.name.removeprefix(PACKED.format(name="")))
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", str(folder / "site")], check=False)


def main() -> None:
    """Packs or unpacks."""
    given = argparse.ArgumentParser(description=__doc__)
    verbs = given.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("out", type=Path)
    packing.add_argument("--data", type=Path, required=True, help="the study's data.root")
    packing.add_argument("--encoder", type=Path, required=True)
    packing.add_argument("--python", default="3.12", help="version of the other machine's Python, and of this one")
    unpacking = verbs.add_parser("unpack")
    unpacking.add_argument("parts", type=Path, help="folder of part1, part2 ...")
    unpacking.add_argument("bundle", type=Path)
    asked = given.parse_args()
    if asked.verb == "unpack":
        unpack(sorted(asked.parts.glob("part*")), asked.bundle)
        return
    out = asked.out.absolute()
    folder = out / "bundle"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(asked.data, folder / "data")
    trim(asked.encoder, folder / "data", folder / PACKED.format(name=asked.encoder.name))
    widen(folder / PACKED.format(name=asked.encoder.name), folder / asked.encoder.name)
    prepare(folder / asked.encoder.name, folder / "data", folder / "out")
    install(asked.python, folder / "wheels", folder / "site")
    write_parts(folder, ["site", "data", "out", PACKED.format(name=asked.encoder.name)], out)


if __name__ == "__main__":
    main()
