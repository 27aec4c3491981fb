"""Additions to typer: help that lists whole sentences, and several values after one option."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Group(TyperGroup):
    """Lists its verbs with their whole help, where typer cuts it at the end of the line."""

    def format_commands(self, _: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])


class ManyFiles(TyperCommand):
    """Takes several values after one option: `--pairs a.tsv b.tsv` is `--pairs a.tsv --pairs b.tsv`, as of a glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        many = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        option, is_first = "", True
        for word in args:
            if word.startswith("-") and word != "-":
                option, is_first = word if word in many else "", True
            elif option:
                spread += [] if is_first else [option]
                is_first = False
            spread.append(word)
        return super().parse_args(ctx, spread)


def group(help_text: str, **options: Any) -> typer.Typer:
    """A command line, or a group of its commands."""
    options |= {"no_args_is_help": True, "pretty_exceptions_enable": False, "rich_markup_mode": None}
    return typer.Typer(cls=Group, help=help_text, **options)
