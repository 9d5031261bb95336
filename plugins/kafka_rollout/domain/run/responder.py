"""Who answered a question of a run, and through which channel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Channel(StrEnum):
    AIRFLOW = "airflow"
    SHELL = "shell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Responder:
    """The person as the channel knows them.

    `user`: Airflow's user id, or the operating system's user at a shell. `name`: the user's name in Airflow.
    `host`: the shell's. `record_id`: the id of Airflow's Human-in-the-loop record, which is the task instance's.
    `answered_at`: epoch seconds by Airflow's record, 0 at a shell.
    """

    channel: Channel
    user: str
    name: str = ""
    host: str = ""
    record_id: str = ""
    answered_at: float = 0.0

    def __str__(self) -> str:
        if self.channel is Channel.SHELL:
            return f"shell user {self.user} on {self.host}"
        return (
            f"Airflow user {self.user}" if self.name in ("", self.user) else f"Airflow user {self.name} ({self.user})"
        )
