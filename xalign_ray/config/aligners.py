"""Settings of the word aligners that `align` of a parallel corpus names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from xalign_ray.config.fields import Frozen, Int

Join = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
IBM_JOIN: Join = "grow-diag-final-and"  # the only one that the library of `ibm` has


class WordAlignment(Frozen):
    """How words are aligned, where a parallel corpus has `align`."""

    train_pairs: Annotated[
        Annotated[Int, Field(ge=1)] | None,
        Field(description="pairs of each corpus that hmm and ibm are trained on, drawn by hash; null: all of them"),
    ] = 30_000
    seed: Annotated[Int, Field(ge=0, description="of the draw of the pairs that an aligner is trained on")] = 0
    join: Annotated[
        Join | None,
        Field(
            description="how both directions become one; null: grow-diag-final-and for hmm and ibm, intersection for "
            "an encoder"
        ),
    ] = None
    extraction: Annotated[
        Literal["softmax", "argmax"],
        Field(
            description="links of an encoder aligner: softmax of products (awesome-align), argmax of cosines (simalign)"
        ),
    ] = "softmax"
    layer: Annotated[
        Annotated[Int, Field(ge=1)] | None,
        Field(description="layer of an encoder, from 1; null: two thirds up, which is 8 of 12"),
    ] = None

    def fault(self, aligners: Collection[str]) -> str:
        """Why these settings do not go with the aligners that are named; empty if they do."""
        kinds = {name.partition(":")[0] for name in aligners}
        if "ibm" in kinds and self.join not in (None, IBM_JOIN):
            return f"word_alignment.join {self.join} is not for align: ibm, which joins by {IBM_JOIN} only"
        if "encoder" not in kinds and (self.extraction != "softmax" or self.layer is not None):
            return "word_alignment.extraction and layer are those of align: encoder:FOLDER, which no corpus has"
        return ""
