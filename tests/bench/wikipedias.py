"""Writes a corpus of 104 languages, as uneven as the Wikipedias, and a recipe of 50 steps over it.

`python tests/bench/wikipedias.py FOLDER [GIGABYTES]`: 2 by default, made of the real pack as in `run.py`. Then, in
FOLDER: `xalign prepare recipe.yaml`, `data stats`, `pretrain`, `report`. It is for looking at what people see at such
numbers of languages. Each language is a real one with its letters exchanged, so that no two share their words.
"""

from __future__ import annotations

import itertools
import string
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import yaml
from generated import REAL, Source, read_sources

# mBERT's languages by about the binary logarithm of their Wikipedia's megabytes, as Wu and Dredze (2020, Table 1) group
# them; those that they leave out stand where their neighbours in number of articles do.
SIZES = {
    3: "io pms scn yo new ht bpy",
    4: "cv lmo mg min su vo",
    5: "an bar br ce fy ga gu is jv ky lb mn my nds ne pa pnb sw tg azb",
    6: "af ba cy kn la mr oc sco sq tl tt uz",
    7: "az bn bs eu hi ka kk lt lv mk ml nn ta te ur",
    8: "ast be bg da el et gl hr hy ms sh sk sl th war ceb",
    9: "fa fi he id ko no ro sr tr vi",
    10: "ar ca cs hu nl sv uk zh-Hant",
    11: "it ja pl pt zh",
    12: "de es fr ru",
    14: "en",
}
STRETCH = 2_000_000  # characters made at a time
INVENTED = 0.01  # share of words that were never written before


def main(folder: Path, gigabytes: float) -> None:
    """Writes `LANGUAGE.txt` of each language and `recipe.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = itertools.cycle(read_sources(sorted(REAL.glob("*.txt"))))
    megabytes = {language: 2.0**size for size, names in SIZES.items() for language in names.split()}
    scale = gigabytes * 1e6 * 1000 / sum(megabytes.values())
    for number, (language, size) in enumerate(megabytes.items()):
        with (folder / f"{language}.txt").open("wb") as file:
            for line in _lines(next(sources), number):
                file.write(line)
                if file.tell() >= size * scale:
                    break
    corpora = [{"format": "text", "language": one, "paths": [f"{one}.txt"]} for one in sorted(megabytes)]
    tree = {
        "extends": "tiny/mlm",
        "data": {"root": str(folder), "corpora": corpora, "parallel": [], "dictionaries": []},
        "output": str(folder / "out"),
        "train": {"max_steps": 50},
    }
    tree["data"]["tokenizer"] = {"kind": "bpe", "vocab_size": 30_000, "sample_mib": 1}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")


def _lines(source: Source, number: int) -> Iterator[bytes]:
    random = np.random.default_rng([9, number])
    letters = "".join(random.permutation(list(string.ascii_lowercase)))
    exchange = str.maketrans(string.ascii_lowercase, letters)
    while True:
        for line in source.lines(STRETCH, INVENTED, random):
            yield f"{line.translate(exchange)}\n".encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), float(sys.argv[2]) if len(sys.argv) > 2 else 2)
