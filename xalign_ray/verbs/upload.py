"""What a submitted job takes along: the package, and the recipes, studies and plug-ins of the user's own."""

from __future__ import annotations

import os
import re
import shutil
import site
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xalign_ray.config.load import RECIPES
from xalign_ray.config.plugins import look_here
from xalign_ray.config.schema import RUN_OF
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError
from xalign_ray.work.credentials import hint_for, strip_credentials

PACKAGE = RECIPES.parent
SHIPPED = (".py", ".typed", ".yaml", ".tsv", ".html", ".css", ".md")  # the kinds of files that the package has
YAML = (".yaml", ".yml")
PLUGINS = "plugins"
MAX_BYTES = 50_000_000  # the dashboard takes at most 100 MiB a request, and says little about why it refused
SHOWN = 5
_URI = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")


@dataclass
class Upload:
    """Files by their place in the upload, and the command as the job gives it.

    Attributes:
        files: where each lies here, by its path in the upload.
        own: those of them that are the user's.
        left_out: what lies in the package's folder and no job reads.
        installed: plug-ins of packages that are installed here; the nodes need them too.
        folder: of the upload, in which the command runs.
        words: the arguments, with paths as they are in the upload.
        stripped: URIs whose credentials stay here, as whoever opens the dashboard reads what goes along.
    """

    files: dict[Path, Path] = field(default_factory=dict)
    own: list[Path] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    folder: Path = Path()
    words: list[str] = field(default_factory=list)
    stripped: list[str] = field(default_factory=list)

    def check_size(self, max_bytes: int = MAX_BYTES) -> int:
        """Counts the upload before anything is sent.

        Returns:
            Its size in bytes, not packed.

        Raises:
            ConfigError: it is larger than `max_bytes`; names the largest files.
        """
        sizes = {path: source.stat().st_size for path, source in self.files.items()}
        if (total := sum(sizes.values())) <= max_bytes:
            return total
        largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
        named = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
        raise ConfigError(
            f"The upload is {total / 1e6:.1f} MB, more than {max_bytes / 1e6:g} MB. The largest files: {named}. Move "
            "them out of the code: data and models go to storage that all nodes see."
        )

    def write(self, target: Path) -> None:
        """Lays it out in a folder of its own, where no .gitignore decides what is left out."""
        for path, source in self.files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            if source.suffix in YAML and path in self.own:
                (target / path).write_text(self._without_credentials(source.read_text("utf-8")), encoding="utf-8")
            else:
                shutil.copyfile(source, target / path)
        (target / self.folder).mkdir(parents=True, exist_ok=True)

    def take_words(self, words: Iterable[str]) -> None:
        """The command's arguments: YAML files that are there by their place in the upload, no credentials."""
        for word in words:
            named = os.path.relpath(word) if word.endswith(YAML) and Path(word).is_file() else word
            self.words.append(self._without_credentials(named))

    def _without_credentials(self, text: str) -> str:
        def strip(found: re.Match[str]) -> str:
            shown = strip_credentials(found[0])
            if shown != found[0] and shown not in self.stripped:
                self.stripped.append(shown)
            return shown

        return _URI.sub(strip, text)

    def describe(self) -> Iterator[str]:
        """What goes along and what does not, in sentences."""
        if self.own:
            yield f"Goes along: {', '.join(map(str, self.own))}."
        if self.left_out:
            yield f"Not uploaded, as no job reads them: {', '.join(map(str, self.left_out))}."
        if self.installed:
            yield f"Installed here, and not uploaded: {', '.join(self.installed)}. The cluster's nodes need them too."
        for shown in self.stripped:
            yield (
                f"The credentials in {shown} do not go along: everybody who opens the dashboard would read them. On "
                f"the cluster's nodes give them by {hint_for(shown)}."
            )


def make_upload(words: Sequence[str], package: Path = PACKAGE) -> Upload:
    """The package, the YAML files that a command names, what these name in turn, and the plug-ins of them all."""
    upload = Upload()
    shipped, left_out = find_code(package)
    upload.files = {Path(package.name) / path: package / path for path in shipped}
    upload.left_out = [Path(package.name) / path for path in left_out]
    trees = dict(_read(Path(word).resolve()) for word in words if word.endswith(YAML) and Path(word).is_file())
    left = list(trees)
    while left:
        found = [path for path in _named(left.pop(), trees) if path not in trees]
        trees |= dict(map(_read, found))
        left += found
    here = Path.cwd()
    root = Path(os.path.commonpath([here, *(path.parent for path in trees)]))
    upload.folder = here.relative_to(root)
    own = {path.relative_to(root): path for path in trees}
    for name in dict.fromkeys([*_listed(trees.values()), *_set(words)]):
        modules = find_plugin(name)
        own |= modules
        upload.installed += [] if modules else [name]
    upload.own = sorted(own)
    upload.files |= own
    upload.take_words(words)
    return upload


def find_code(package: Path) -> tuple[list[Path], list[Path]]:
    """The files of the package that a job needs, relative to it; and what lies beside them and is left out.

    Left out are dot files, links that lead out of the package, and files of a kind that no job reads.
    """
    shipped, left_out = [], []
    for path in sorted(package.rglob("*")):
        own = path.relative_to(package)
        if "__pycache__" in own.parts or (path.is_dir() and not path.is_symlink()):
            continue
        hidden = any(part.startswith(".") for part in own.parts)
        inside = path.resolve().is_relative_to(package.resolve())
        takes = not hidden and inside and path.is_file() and path.suffix in SHIPPED
        (shipped if takes else left_out).append(own)
    return shipped, left_out


def find_plugin(name: str) -> dict[Path, Path]:
    """A module's file, or those of the package that it is in, by what they are imported as; none if it is installed."""
    look_here()
    spec = find_spec(name.partition(".")[0])
    if spec is None:
        raise ConfigError(f"There is no module {name} here or on Python's path, which is named as a plug-in.")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))] or [Path(str(spec.origin))]
    root = (folders[0] if folders else files[0]).parent
    if any(root.is_relative_to(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())):
        return {}
    return {path.relative_to(root): path for path in files}


def _read(path: Path) -> tuple[Path, Any]:
    return path, parse_yaml(path.read_text(encoding="utf-8"))


def _named(path: Path, trees: Mapping[Path, Any]) -> Iterator[Path]:
    """The YAML files outside the package that one names: what it extends, or any value that is a path of one."""
    tree = trees[path]
    extends = tree.get("extends", ()) if isinstance(tree, Mapping) else ()
    names = [extends] if isinstance(extends, str) else list(extends)
    names += [f"{name}.yaml" for name in names]
    names += [text.removeprefix(RUN_OF) for text in _texts(tree) if text.endswith(YAML)]
    for candidate in (folder / name for name in names for folder in (path.parent, Path.cwd())):
        if candidate.is_file() and not (found := candidate.resolve()).is_relative_to(PACKAGE):
            yield found


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list):
        for one in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _texts(one)


def _listed(trees: Iterable[Any]) -> Iterator[str]:
    """The plug-ins of recipes, and the tasks of the user's own of studies."""
    for tree in filter(lambda tree: isinstance(tree, Mapping), trees):
        yield from tree.get(PLUGINS) or ()
        for one in (*(tree.get("evaluations") or ()), *(tree.get("finetunings") or ())):
            if isinstance(one, Mapping) and "." in str(one.get("task")):
                yield one["task"]


def _set(words: Iterable[str]) -> Iterator[str]:
    """The plug-ins of `--set plugins=[...]`, and the task of the user's own of `--task`."""
    before = ""
    for word in words:
        key, _, text = word.partition("=")
        if key == PLUGINS:
            yield from parse_yaml(text)
        task = word if before == "--task" else text if key == "--task" else ""
        if "." in task:
            yield task
        before = word
