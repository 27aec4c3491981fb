"""Writes sentences of the embedded world as CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from xalign_ray.demo.grammar import ROOT, Token, write_text


def conllu_block(name: str, tokens: Sequence[Token]) -> str:
    """The lines of a sentence."""
    numbers = {ROOT: 0} | {token.key: number for number, token in enumerate(tokens, 1)}
    lines = [f"# sent_id = {name}", f"# text = {write_text(list(tokens))}"]
    for number, token in enumerate(tokens, 1):
        space = "SpaceAfter=No" if number == len(tokens) - 1 else "_"
        head, relation = str(numbers[token.head]), token.relation
        lines.append("\t".join((str(number), token.form, token.form, token.upos, "_", "_", head, relation, "_", space)))
    return "\n".join(lines) + "\n"


def conllu_documents(documents: Iterable[Iterable[Sequence[Token]]]) -> Iterator[str]:
    """The sentences of documents, each of which `# newdoc` begins."""
    for number, sentences in enumerate(documents, 1):
        for place, tokens in enumerate(sentences, 1):
            new = f"# newdoc id = {number}\n" if place == 1 else ""
            yield new + conllu_block(f"{number}-{place}", tokens)
