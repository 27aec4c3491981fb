"""Preparing a part takes memory by its window, not by its size: measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from xalign_ray.vocabulary.tokenizer import SPECIALS

MEASURE = """
import json, resource, sys
from xalign_ray.tokens import part
part.WINDOW_CHARACTERS = 1 << 20
from xalign_ray.clean.filters import Filters
from xalign_ray.sources.open import Span
from xalign_ray.sources.records import Part
path, name = sys.argv[2:]
part.prepare_part(part.Task(sys.argv[1], f"text/en/{name}", "text/en", ("en",), Part("text", (path,), (Span(),)),
                            128, False, 0.02, (), Filters()), ("en",))
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def peak_mib(folder: Path, name: str, megabytes: int) -> float:
    source = np.random.default_rng(megabytes)
    words = np.asarray([f"w{number}" for number in range(20_000)])
    path = folder / f"{name}.txt"
    with path.open("w") as file:
        while file.tell() < megabytes << 20:
            drawn = words[(source.pareto(1.0, (2000, 25)) * 20).astype(np.int64) % len(words)]
            file.write("".join(" ".join(line) + "\n" for line in drawn))
    command = [sys.executable, "-c", MEASURE, str(folder), str(path), name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_memory_does_not_grow_with_the_part(tmp_path: Path) -> None:
    made = Tokenizer(models.WordPiece({t: i for i, t in enumerate([*SPECIALS, "w", *(f"##{d}" for d in range(10))])}))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    (tmp_path / "tokenizer").mkdir()
    made.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    small, large = peak_mib(tmp_path, "small", 4), peak_mib(tmp_path, "large", 14)
    # The pieces of 10 MiB more would take, as arrays alone, 10 MiB / 5 bytes a word * 4 pieces * 4 bytes = 32 MiB.
    assert large - small < 16, (small, large)
