"""The `ibm` aligner: fast_align's IBM model 2 (Dyer et al. 2013), as the library systran-align has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from xalign_ray.data.word_alignment.links import GROW_DIAG_FINAL_AND, Link, WordPair
from xalign_ray.errors import ConfigError

FORWARD, BACKWARD = "forward.probs", "backward.probs"
BAR = "|||"  # separates the sides of a pair in the file that the library trains on

# `-d -o -v` of fast_align, its authors' advice; ten rounds or five make no difference that we could see. The tension
# that `-o` tunes shapes the probabilities that training writes, but the library's files do not hold it: its Aligner
# aligns with the tension 4, and without the probabilities below e^-4 of a word's best, which are not written.
OPTIONS = {"favor_diagonal": True, "optimize_tension": True, "variational_bayes": True}


@dataclass(frozen=True)
class FastAlign:
    """The kind `ibm`. The library symmetrises itself, in one way, and does not show its two directions."""

    name: ClassVar[str] = "ibm"
    methods: ClassVar[tuple[str, ...]] = (GROW_DIAG_FINAL_AND,)
    default_method: ClassVar[str] = GROW_DIAG_FINAL_AND
    learns: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on, besides the pairs it is trained on."""
        from importlib.metadata import version

        _library()
        return {"kind": self.name, "systran-align": version("systran-align"), "options": OPTIONS}

    def train(self, pairs: Sequence[WordPair], folder: Path) -> None:
        """Trains on the pairs and writes the probabilities of both directions."""
        text = folder / "sample.txt"
        with text.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{' '.join(_plain(a))} {BAR} {' '.join(_plain(b))}\n" for a, b in pairs if a and b)
        _library().generate_alignment_probabilities(str(text), str(folder / FORWARD), str(folder / BACKWARD), **OPTIONS)
        text.unlink()

    def open(self, folder: Path) -> FastAligner:
        """The trained model in a folder."""
        return FastAligner(_library().Aligner(str(folder / FORWARD), str(folder / BACKWARD)))


@dataclass(frozen=True)
class FastAligner:
    """A trained model; `model` is the library's."""

    model: Any

    def align(self, pairs: Sequence[WordPair], method: str) -> list[list[Link]]:
        """Links of each pair, in the one way the library has."""
        assert method == GROW_DIAG_FINAL_AND, "check_method was called before"
        full = [number for number, (a, b) in enumerate(pairs) if a and b]
        links: list[list[Link]] = [[] for _ in pairs]
        found = self.model.align_batch([_plain(pairs[n][0]) for n in full], [_plain(pairs[n][1]) for n in full])
        for number, one in zip(full, found, strict=True):
            links[number] = sorted((int(i), int(j)) for i, j in one["alignments"])
        return links


def _plain(words: Sequence[str]) -> list[str]:
    """Words as the library can write them: without blanks, and none that is the bar between the sides."""
    joined = ("".join(word.split()) or "_" for word in words)
    return ["||" if word == BAR else word for word in joined]


def _library() -> Any:
    try:
        import systran_align
    except ImportError as error:
        raise ConfigError(
            "aligner 'ibm' needs the package systran-align, which is not installed: `pip install systran-align` "
            "(it has wheels up to Python 3.11), or take the aligner 'hmm'."
        ) from error
    return systran_align
