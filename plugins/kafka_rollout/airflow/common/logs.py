"""Logs of the tasks: one visible line per message, because names of groups and topics come from outside."""

from __future__ import annotations

from typing import Any

from kafka_rollout.domain.model.outside_text import escape_invisible


class OneLineLogger:
    """A logger that writes each message as one line without invisible characters."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def debug(self, message: str, *args: object) -> None:
        self._logger.debug("%s", _line(message, args))

    def info(self, message: str, *args: object) -> None:
        self._logger.info("%s", _line(message, args))

    def warning(self, message: str, *args: object) -> None:
        self._logger.warning("%s", _line(message, args))

    def error(self, message: str, *args: object) -> None:
        self._logger.error("%s", _line(message, args))


class OneLineLogs:
    """Mixin, before Airflow's class: messages to `self.log` go through OneLineLogger."""

    @property
    def log(self) -> Any:
        return OneLineLogger(super().log)  # type: ignore[misc]  # of Airflow's class


def _line(message: str, args: tuple[object, ...]) -> str:
    return escape_invisible(message % args if args else message)
