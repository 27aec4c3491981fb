"""The commands of the group `data`: data is fetched, made, read, aligned, mined and measured."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from xalign_ray.config.load import list_recipes
from xalign_ray.errors import ConfigError
from xalign_ray.verbs.arguments import as_model, as_path, as_paths, codes, filled_path
from xalign_ray.verbs.command import group
from xalign_ray.verbs.options import (
    Fetched,
    Format,
    Out,
    OutDir,
    ParallelFormat,
    Paths,
    RecipeOrFolder,
    Settings,
    SourceLanguages,
    path_option,
)
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import absolute_path, quoted, shown_path

app = group("Data: fetch, make, read, align, measure.")


def _files(help_text: str) -> Any:
    return path_option("PATH", help_text)


@app.command("demo")
def data_demo(
    out: OutDir,
    derived: Annotated[
        Path | None, path_option("DIR", "also three languages derived from its English, a folder each")
    ] = None,
) -> list[Path]:
    """Write the embedded world's files."""
    from xalign_ray.demo.writer import write_demo

    folders = [as_path(out)]
    write_demo(folders[0])
    if derived:
        folders.append(as_path(derived))
        say(f"Deriving three languages in {shown_path(folders[1])}.")
        from xalign_ray.derive.corpus import write_demo_derived

        write_demo_derived(*folders)
    say_next(f"xalign pretrain tiny/mlm --set data.root={quoted(folders[0])}")
    return folders


@app.command("derive")
def data_derive(
    sources: Annotated[list[str], typer.Option("--from", metavar="[FORMAT:]PATH", help="English; text if no format")],
    out: OutDir,
    changes: Annotated[str, typer.Option(help="of inv, syn and trans, in the order of application")] = "inv,trans",
    treebank: Annotated[list[Path], _files("CoNLL-U whose word order syn takes")] = [],
    pos: Annotated[list[Path], _files("tagged English to derive too")] = [],
    ner: Annotated[list[Path], _files("the same with names")] = [],
    xnli: Annotated[list[Path], _files("the same with inferences")] = [],
    vocab_size: Annotated[int, typer.Option(min=64, help="English pieces; trans copies them")] = 40_000,
    overlap: Annotated[float, typer.Option(help="share of the pieces that stay as they are")] = 0.0,
    dictionary_share: Annotated[
        list[float], typer.Option(help="of the types; the others are held out; may be given again")
    ] = [0.25],
    parallel_share: Annotated[list[float], typer.Option(help="of the sentences; may be given again")] = [0.25],
    seed: Annotated[int, typer.Option(help="of what is drawn")] = 0,
) -> Path:
    """Make a language out of English (words turned round, in another order or script), in the formats of real ones."""
    from xalign_ray.derive.corpus import Derivation, write_derived
    from xalign_ray.work.job import open_job

    folder, order = as_path(out), tuple(name.strip() for name in changes.split(","))
    how = Derivation(order, vocab_size, overlap, tuple(dictionary_share), tuple(parallel_share), seed)
    say(f"Deriving a language from {', '.join(sources)}.")
    tasks = {"pos": as_paths(pos), "ner": as_paths(ner), "xnli": as_paths(xnli)}
    with open_job(folder, "data derive"):
        write_derived(sources, folder, how, as_paths(treebank), **tasks)
    say_next(f"xalign study derived --plan --set data.root={quoted(folder)}")
    return folder


@app.command("read")
def data_read(
    paths: Paths,
    format_: Format,
    languages: SourceLanguages = "",
    columns: Annotated[str, typer.Option(metavar="NAMES", help="of the text, or of the two texts of pairs")] = "",
    terms: Annotated[bool, typer.Option("--terms", help="read a table of pairs as a dictionary")] = False,
    config: Annotated[str, typer.Option(metavar="NAME", help="of a Hugging Face data set (hf); by language")] = "",
    split: Annotated[str, typer.Option(metavar="NAME", help="of a Hugging Face data set")] = "train",
    revision: Annotated[str, typer.Option(metavar="NAME", help="of a data set of the hub; main")] = "",
) -> None:
    """Print the records of a source as JSON lines, and counts of rows that are left out."""
    from xalign_ray.sources.formats import HF, describe_counts, find_split_source, kind_of, read, record_as_json
    from xalign_ray.sources.records import BadRow

    files, named = _here(paths), codes(languages)
    if format_ == HF:
        format_, files = find_split_source(paths, named, config or None, split, revision or None)
    kind = "entries" if terms else kind_of(format_, named)
    good, bad, skipped = 0, Counter[str](), Counter[str]()
    try:
        for record in read(format_, files, named, skipped, codes(columns) or None, kind=kind):
            if isinstance(record, BadRow):
                bad[record.reason] += 1
            else:
                good += 1
            sys.stdout.write(json.dumps(record_as_json(record), ensure_ascii=False) + "\n")
    finally:
        say(describe_counts(kind, good, bad, skipped))


@app.command("fetch")
def data_fetch(
    name: Fetched = "",
    out: Annotated[Path, path_option("DIR", "what data.root names", "--out")] = Path("data"),
    languages: SourceLanguages = "",
    listed: Annotated[bool, typer.Option("--list", help="what there is, licences, what recipes need")] = False,
) -> list[Path] | str:
    """Load corpora and task sets to where recipes look for them; go on where it broke off."""
    from xalign_ray.sources.fetch import describe, fetch
    from xalign_ray.work.job import open_job

    if listed or not name:
        return describe()
    folder = as_path(out)
    with open_job(folder, "data fetch"):
        files = fetch(name, folder, codes(languages), say)
    root = f"--set data.root={quoted(folder)}"
    say_next(f"xalign plan {name} {root}" if name in list_recipes() else f"xalign pretrain RECIPE {root}")
    return files


@app.command("align")
def data_align(
    paths: Paths,
    languages: SourceLanguages,
    out: OutDir,
    format_: ParallelFormat = "moses",
    aligner: Annotated[str, typer.Option(metavar="NAME", help="hmm or encoder:FOLDER")] = "hmm",
    method: Annotated[str, typer.Option(metavar="NAME", help="how both directions are joined; the aligner's own")] = "",
    pairs: Annotated[int, typer.Option(min=0, metavar="N", help="pairs that hmm is trained on; 0: all")] = 30_000,
    extraction: Annotated[str, typer.Option(metavar="NAME", help="links of an encoder: softmax or argmax")] = "softmax",
    min_count: Annotated[int, typer.Option(min=1, metavar="N", help="links of two words in the dictionary")] = 3,
    min_share: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="their share of the links of either word")
    ] = 0.1,
) -> Path:
    """Align the words of a parallel corpus; DIR/alignment.txt is the third path of a Moses corpus."""
    # Also writes, of languages en and de, `DIR/en-de.dictionary.tsv`: a dictionary of aligned words with counts; and
    # `DIR/en-de.frequent.txt`: the words that are aligned most often, for `word-map`.
    from pydantic import ValidationError

    from xalign_ray.config.derive import absolute_aligner
    from xalign_ray.config.explain import explain_validation
    from xalign_ray.config.schema import ParallelConfig, ParallelCorpus
    from xalign_ray.config.sources import WordAlignment
    from xalign_ray.work.mirror import check_lasting

    folder = as_path(out)
    check_lasting("--out", folder)
    name = absolute_aligner(aligner)
    from xalign_ray.align.corpus import align_corpus, write_words
    from xalign_ray.align.kinds import named_aligner
    from xalign_ray.train.cluster_address import check_named_cluster
    from xalign_ray.work.job import open_job

    settings = {"join": method or None, "train_pairs": pairs or None, "extraction": extraction}
    try:
        corpus = ParallelCorpus.model_validate(
            {"format": format_, "languages": codes(languages), "paths": _here(paths)}
        )
        chosen = WordAlignment.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, ParallelCorpus)) from None
    if fault := chosen.fault([name]):
        raise ConfigError(f"{fault}.")
    kind = named_aligner(name, corpus.languages, chosen)
    say(f"Aligning words of {', '.join(corpus.paths)}.")
    check_named_cluster()
    from xalign_ray.train.cluster import connect  # torch and Ray

    with open_job(folder, "data align"):
        connect(ParallelConfig())
        aligned = align_corpus(corpus, folder, kind=kind, settings=chosen)
        write_words(corpus, aligned, min_count, min_share)
    say_next(f"name the file as third path of a moses corpus in a recipe: {quoted(folder / 'alignment.txt')}")
    return aligned


@app.command("mine")
def data_mine(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="text, a sentence a line", parser=filled_path)],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="the same in another language", parser=filled_path)],
    languages: SourceLanguages,
    model: Annotated[str, typer.Option(metavar="MODEL", help="encoder: a Sentence Transformers folder, or any other")],
    out: OutDir,
    dev: Annotated[Path | None, _files("known pairs, by which the threshold is chosen")] = None,
    threshold: Annotated[float | None, typer.Option(metavar="X", help="least score, such as 1.06")] = None,
    neighbours: Annotated[int, typer.Option(min=1, metavar="K", help="of a sentence, for its margin")] = 4,
) -> Path:
    """Mine sentence pairs out of two monolingual files, by the ratio margin of an encoder's vectors."""
    from xalign_ray.sources.formats import check_languages

    named = codes(languages)
    if len(named) != 2:
        raise ConfigError("--languages: give the codes of FIRST and SECOND, as in --languages en,de.")
    if (dev is None) == (threshold is None):
        raise ConfigError("Give --dev PAIRS, by which the threshold is chosen, or --threshold X; not both.")
    (first_code,), (second_code,) = (check_languages("text", [code]) for code in named)
    both = first_code, second_code
    from xalign_ray.align.mining import mine_files
    from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs
    from xalign_ray.work.job import open_job

    folder, files = as_path(out), (as_path(first), as_path(second))
    dev_pairs: list[tuple[str, str]] = []
    for corpus in look_at_pairs([str(as_path(dev))], both, split="dev") if dev else ():
        step = 1 if corpus.languages == both else -1
        dev_pairs += [pair[::step] for pair in read_pairs(corpus)]  # type: ignore[misc]
    say(f"Mining {shown_path(files[0])} and {shown_path(files[1])}: reading them.")
    with open_job(folder, "data mine"):
        mined = mine_files(files, both, as_model(model), folder, neighbours, dev_pairs, threshold)
    say_next(f"xalign continue MODEL --pairs {quoted(mined)}")
    return mined


@app.command("stats")
def data_stats(what: RecipeOrFolder, settings: Settings = [], out: Out = None) -> list[Path]:
    """Print sizes of prepared data, the coverage of dictionaries, and how often a run reads them."""
    from rich.console import Console

    from xalign_ray.tokens.stats import as_tables, measure

    stats, files = measure(as_model(what), settings, as_path(out))
    Console(stderr=True).print(*as_tables(stats), sep="\n")
    return files


def _here(paths: Iterable[str]) -> list[str]:
    return [absolute_path(path) for path in paths]
