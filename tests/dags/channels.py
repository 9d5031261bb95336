"""A notifier as an administrator would install one: its text is a template, and it writes its messages to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class FileNotifier(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        super().__init__()

    def notify(self, context: Context) -> None:
        with Path(self.file).open("a") as told:
            told.write(f"{self.text}\n")
