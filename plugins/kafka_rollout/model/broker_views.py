"""The metadata that each broker reports, and where brokers differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafka_rollout.base.wording import nodes

BrokerView: TypeAlias = Mapping[str, Mapping[str, str]]
"""Kind (`client-metrics subscription`, `ACL`) → subject → its values as a text. A kind that the broker does not offer
is missing."""


def find_disagreements(views: Mapping[int, BrokerView]) -> Mapping[str, str]:
    """Return `kind subject` → a sentence, for everything that not all brokers have with the same values.

    `views`: broker id → what it has. A kind counts only between the brokers that offer it.
    """
    found: dict[str, str] = {}
    for kind in dict.fromkeys(kind for view in views.values() for kind in view):
        offered = {broker: view[kind] for broker, view in views.items() if kind in view}
        for subject in dict.fromkeys(subject for had in offered.values() for subject in had):
            values = {broker: had.get(subject) for broker, had in offered.items()}
            if len(set(values.values())) > 1:
                found[f"{kind} {subject}"] = _sentence(f"{kind} {subject}", values)
    return found


def _sentence(what: str, values: Mapping[int, str | None]) -> str:
    """Name the brokers by what they have. Values of clients are not shown: they can be long."""
    lacking = [broker for broker, value in values.items() if value is None]
    having = [broker for broker, value in values.items() if value is not None]
    if len({values[broker] for broker in having}) > 1:
        return f"The brokers do not have the same values of {what}: {'; '.join(_groups(values))}."
    return f"The {what} is missing on {_brokers(lacking)}, and {_brokers(having)} {_has(having)} it."


def _groups(values: Mapping[int, str | None]) -> Iterable[str]:
    for value in dict.fromkeys(values.values()):
        brokers = [broker for broker, own in values.items() if own == value]
        yield f"{_brokers(brokers)} {_has(brokers)} {'none' if value is None else value or 'no values'}"


def _brokers(ids: Iterable[int]) -> str:
    return nodes(ids).replace("node", "broker")


def _has(ids: list[int]) -> str:
    return "has" if len(ids) == 1 else "have"
