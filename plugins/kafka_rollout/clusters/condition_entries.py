"""Conditions from outside as an inventory declares them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from kafka_rollout.clusters.credential_search import find_credential_argument
from kafka_rollout.gates.outside import COMPARISON, CONDITION_NAME
from kafka_rollout.model.topology import AppliesTo

FORMS = {CONDITION_NAME: "lower-case letters, digits and -"}  # pattern → the form in words


class ConditionEntry(BaseModel):
    """A Prometheus query or a command whose value the gates of nodes check."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[
        str, StringConstraints(pattern=CONDITION_NAME), Field(description="name of the condition in gates and reports")
    ]
    query: Annotated[
        str, Field(max_length=10_000, description="PromQL that returns one number; either query or command")
    ] = ""
    command: Annotated[
        tuple[str, ...],
        Field(
            max_length=100,
            description="the absolute path of a program, and its arguments, which no shell reads. It runs on the "
            "Airflow worker or triggerer, or on the machine of the command line",
        ),
    ] = ()
    requires: Annotated[
        str,
        Field(
            description='comparison that the number must meet, for example "< 0.01": of the query, or of the standard '
            "output of the command. Without it, exit code 0 of the command meets the condition and 1 does not"
        ),
    ] = ""
    applies_to: Annotated[
        tuple[AppliesTo, ...],
        Field(min_length=1, description="before_stop (default), after_start or both: which gates of a node check it"),
    ] = ("before_stop",)
    for_s: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            description="all checks during these seconds must pass, at least interval_s; default: one check",
        ),
    ] = 0.0
    interval_s: Annotated[
        float, Field(ge=1, le=3600, description="least seconds between two readings of the value")
    ] = 10.0
    timeout_s: Annotated[float, Field(gt=0, le=60, description="seconds until one reading counts as failed")] = 10.0

    @field_validator("requires")
    @classmethod
    def _is_a_comparison(cls, text: str) -> str:
        if text and not re.fullmatch(COMPARISON, text):
            raise ValueError(f"'{text}' is not a comparison: write it in quotes, for example \"< 0.01\"")
        return text

    @field_validator("command")
    @classmethod
    def _is_a_program(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if words and not words[0].startswith("/"):
            raise ValueError(f"{words[0]} is not the absolute path of a program")
        if secret := find_credential_argument(words[1:]):
            raise ValueError(
                f"{secret} is a credential in an argument, which every user of the machine can read: "
                "let the command read it from a file"
            )
        return words

    @model_validator(mode="after")
    def _is_one_of_both(self) -> ConditionEntry:
        if bool(self.query.strip()) == bool(self.command):
            raise ValueError(f"condition {self.name} needs either a query or a command")
        if self.query and not self.requires:
            raise ValueError(f"condition {self.name} is a query: it needs requires")
        if 0 < self.for_s < self.interval_s:
            raise ValueError(
                f"condition {self.name} has for_s {self.for_s:g} below interval_s {self.interval_s:g}: all checks of "
                "that time would use one reading"
            )
        return self
