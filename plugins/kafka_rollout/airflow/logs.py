"""Logs of the tasks: one visible line per message, because names of groups and topics come from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_rollout.base.outside_text import escape_invisible


class OneLineLogger:
    """A logger that writes each message as one line without invisible characters."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, level: str) -> Callable[..., None]:
        """Return the function of a level: debug, info, warning or error."""
        write = getattr(self._logger, level)
        return lambda message, *args: write("%s", escape_invisible(message % args if args else message))


class OneLineLogs:
    """Mixin, before Airflow's class: messages to `self.log` go through OneLineLogger."""

    @property
    def log(self) -> Any:
        return OneLineLogger(super().log)  # type: ignore[misc]  # of Airflow's class
