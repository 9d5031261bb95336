"""The text of `--help`: options and commands by subject, each with its whole text, also in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose options are listed by subject. typer's own tables leave 16 columns for their texts."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands, each with the first paragraph of its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = [name for name in self.list_commands(ctx) if not self._command(ctx, name).hidden]
        for title, listed in self.by_subject(names):
            rows = [(name, " ".join((self._command(ctx, name).help or "").split("\n\n")[0].split())) for name in listed]
            with formatter.section(title):
                formatter.write_dl(rows)

    def by_subject(self, names: list[str]) -> Iterable[tuple[str, Iterable[str]]]:
        """Return the commands under their titles."""
        return [("Commands", names)]

    def _command(self, ctx: Any, name: str) -> Any:
        return self.get_command(ctx, name)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is not None:
            title = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
            sections.setdefault(title, []).append(record)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
