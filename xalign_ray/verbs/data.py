"""The verbs of the group `data`: data is fetched, made, read, aligned and measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from xalign_ray.config.load import list_recipes
from xalign_ray.verbs.arguments import (
    Fetched,
    Format,
    Group,
    Out,
    OutDir,
    ParallelFormat,
    Paths,
    RecipeOrFolder,
    Settings,
    SourceLanguages,
    as_local,
    codes,
)
from xalign_ray.work.local_paths import quoted, shown_path
from xalign_ray.work.status_line import say, say_next

data_app = typer.Typer(cls=Group, no_args_is_help=True, help="Data: fetch, make, read, align, measure.")


@data_app.command("demo")
def data_demo(
    out: OutDir,
    derived: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", callback=as_local, help="also three languages derived from its English, a folder each"
        ),
    ] = None,
) -> None:
    """Write the embedded world's files."""
    from xalign_ray.demo.writer import write_demo

    write_demo(out)
    typer.echo(str(out))
    if derived:
        say(f"Deriving three languages in {shown_path(derived)}.")
        from xalign_ray.data.demo_derived import write_demo_derived

        write_demo_derived(out, derived)
        typer.echo(str(derived))
    say_next(f"xalign pretrain tiny/mlm --set data.root={quoted(out)}")


@data_app.command("derive")
def data_derive(
    sources: Annotated[list[str], typer.Option("--from", metavar="[FORMAT:]PATH", help="English; text if no format")],
    out: OutDir,
    changes: Annotated[str, typer.Option(help="of inv, syn and trans, in the order of application")] = "inv,trans",
    treebank: Annotated[
        list[Path], typer.Option(metavar="PATH", callback=as_local, help="CoNLL-U whose word order syn takes")
    ] = [],  # noqa: B006
    pos: Annotated[
        list[Path], typer.Option(metavar="PATH", callback=as_local, help="tagged English to derive too")
    ] = [],  # noqa: B006
    ner: Annotated[list[Path], typer.Option(metavar="PATH", callback=as_local, help="the same with names")] = [],  # noqa: B006
    xnli: Annotated[list[Path], typer.Option(metavar="PATH", callback=as_local, help="the same with inferences")] = [],  # noqa: B006
    vocab_size: Annotated[int, typer.Option(min=64, help="English pieces; trans copies them")] = 40_000,
    overlap: Annotated[float, typer.Option(help="share of the pieces that stay as they are")] = 0.0,
    dictionary_share: Annotated[
        list[float], typer.Option(help="of the types; the others are held out; may be given again")
    ] = [0.25],  # noqa: B006
    parallel_share: Annotated[list[float], typer.Option(help="of the sentences; may be given again")] = [0.25],  # noqa: B006
    seed: Annotated[int, typer.Option(help="of what is drawn")] = 0,
) -> None:
    """Make a language out of English (words turned round, in another order or script), in the formats of real ones."""
    from xalign_ray.data.derived_corpus import Derivation, write_derived

    order = tuple(name.strip() for name in changes.split(","))
    how = Derivation(order, vocab_size, overlap, tuple(dictionary_share), tuple(parallel_share), seed)
    say(f"Deriving a language from {', '.join(sources)}.")
    write_derived(sources, out, how, treebank, pos=pos, ner=ner, xnli=xnli)
    typer.echo(str(out))
    say_next(f"xalign study derived --plan --set data.root={quoted(out)}")


@data_app.command("read")
def data_read(
    paths: Paths,
    format_: Format,
    languages: SourceLanguages = "",
) -> None:
    """Print what a source yields, as JSON lines."""
    from xalign_ray.data.sources.formats import read, record_as_json

    for record in read(format_, paths, codes(languages)):
        sys.stdout.write(json.dumps(record_as_json(record), ensure_ascii=False) + "\n")


@data_app.command("fetch")
def data_fetch(
    name: Fetched = "",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", callback=as_local, help="what data.root names")] = Path(
        "data"
    ),
    languages: SourceLanguages = "",
    listed: Annotated[bool, typer.Option("--list", help="what there is, licences, what recipes need")] = False,
) -> None:
    """Load corpora and task sets to where recipes look for them; go on where it broke off."""
    from xalign_ray.data.catalogue import describe
    from xalign_ray.data.fetch import fetch

    if listed or not name:
        typer.echo(describe())
        return
    typer.echo("\n".join(str(path) for path in fetch(name, out, codes(languages), say)))
    root = f"--set data.root={quoted(out)}"
    say_next(f"xalign plan {name} {root}" if name in list_recipes() else f"xalign pretrain RECIPE {root}")


@data_app.command("align")
def data_align(
    paths: Paths,
    languages: SourceLanguages,
    out: OutDir,
    format_: ParallelFormat = "moses",
    aligner: Annotated[str, typer.Option(metavar="NAME", help="hmm, ibm, or encoder:FOLDER")] = "hmm",
    method: Annotated[str, typer.Option(metavar="NAME", help="how both directions are joined; the aligner's own")] = "",
    pairs: Annotated[
        int, typer.Option(min=0, metavar="N", help="pairs that hmm and ibm are trained on; 0: all")
    ] = 30_000,
    extraction: Annotated[str, typer.Option(metavar="NAME", help="links of an encoder: softmax or argmax")] = "softmax",
) -> None:
    """Align the words of a parallel corpus; DIR/alignment.txt is the third path of a Moses corpus."""
    from xalign_ray.verbs.align import align

    settings = {"join": method or None, "train_pairs": pairs or None, "extraction": extraction}
    typer.echo(str(align(paths, format_, codes(languages), out, aligner, settings)))
    say_next(f"name the file as third path of a moses corpus in a recipe: {quoted(out / 'alignment.txt')}")


@data_app.command("stats")
def data_stats(
    what: RecipeOrFolder,
    settings: Settings = [],  # noqa: B006
    out: Out = None,
) -> None:
    """Say what prepared data holds, what dictionaries cover, and how often a run sees it."""
    from rich.console import Console

    from xalign_ray.data.stats import as_tables, measure

    stats, files = measure(what, settings, out)
    Console(stderr=True).print(*as_tables(stats), sep="\n")
    for broken in stats.broken_files:
        typer.echo(f"warning: {broken}", err=True)
    typer.echo("\n".join(map(str, files)))
