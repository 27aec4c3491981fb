"""What an aligner is, the kinds there are by name, and the kind ibm, which is fast_align's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from xalign_ray.align.chain_aligner import Chains
from xalign_ray.align.encoder_aligner import PretrainedEncoder
from xalign_ray.align.links import GROW_DIAG_FINAL_AND, Link, WordPair
from xalign_ray.config.explain import suggest
from xalign_ray.config.sources import WordAlignment
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


class Aligner(Protocol):
    """A model that is ready to align; stays in its process."""

    def align(self, pairs: Sequence[WordPair], method: str) -> list[list[Link]]:
        """The sorted links of each pair, both directions made one by `method`, one of its kind's methods."""
        ...


class AlignerKind(Protocol):
    """How a model is trained and opened; small, so that it travels to a worker.

    Attributes:
        name: as in ALIGNERS.
        methods: the names in links.SYMMETRISERS that it can do.
        default_method: the one that it is published with.
        learns: whether it is trained on pairs.
    """

    name: ClassVar[str]
    methods: ClassVar[tuple[str, ...]]
    default_method: ClassVar[str]
    learns: ClassVar[bool]

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on, besides the pairs it is trained on: JSON."""
        ...

    def train(self, pairs: Sequence[WordPair], folder: Path) -> None:
        """Trains on the pairs and writes the model's files into a folder that exists."""
        ...

    def open(self, folder: Path) -> Aligner:
        """The trained model in a folder."""
        ...


ALIGNERS: Mapping[str, Callable[..., AlignerKind]] = {
    Chains.name: Chains,
    FastAlign.name: FastAlign,
    PretrainedEncoder.name: PretrainedEncoder,
}


def choose_aligner(name: str, **options: Any) -> AlignerKind:
    """A kind of aligner by name; options are those of its class.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in ALIGNERS:
        raise ConfigError(f"unknown aligner '{name}'.{suggest(name, ALIGNERS)} Known: {', '.join(ALIGNERS)}.")
    return ALIGNERS[name](**options)


def named_aligner(name: str, languages: tuple[str, str], settings: WordAlignment) -> AlignerKind:
    """The kind that a recipe or command names: `hmm`, `ibm`, or `encoder:FOLDER`, for a corpus of two languages."""
    name, _, folder = name.partition(":")
    options = {"path": folder, "languages": languages, "extraction": settings.extraction, "layer": settings.layer}
    return choose_aligner(name, **(options if folder else {}))


def alignment_identity(kind: AlignerKind, settings: WordAlignment) -> dict[str, Any]:
    """What links depend on besides the texts: the aligner, the join, and the sample that it is trained on."""
    sample = {"pairs": settings.train_pairs, "seed": settings.seed} if kind.learns else None
    return {"aligner": kind.identity(), "method": settings.join or kind.default_method, "sample": sample}


def check_method(kind: AlignerKind, method: str) -> None:
    """Raises ConfigError if a kind of aligner cannot symmetrise in this way."""
    if method not in kind.methods:
        raise ConfigError(f"aligner '{kind.name}' cannot symmetrise by '{method}'.{suggest(method, kind.methods)} "
                          f"It knows: {', '.join(kind.methods)}.")  # fmt: skip
