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
        found: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for title, names in self.by_subject([name for name, command in found.items() if not command.hidden]):
            rows = [(name, " ".join((found[name].help or "").split("\n\n")[0].split())) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def by_subject(self, names: list[str]) -> Iterable[tuple[str, Iterable[str]]]:
        """Return the commands under their titles."""
        return [("Commands", names)]


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if (record := param.get_help_record(ctx)) is not None:
            title = "Arguments" if param.param_type_name == "argument" else param.rich_help_panel or "Options"
            sections.setdefault(title, []).append(record)
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)
