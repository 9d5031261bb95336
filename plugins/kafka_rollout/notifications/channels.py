"""The channels of notifications, as an operator writes them into a Variable of Airflow (docs/notifications.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.notifications.due import SCAN_KINDS, Notification, NotificationKind, NotificationTimes

VARIABLE = "kafka_rollout_notifications"
SCAN_VARIABLE = "kafka_rollout_alert"  # one channel for the kinds of the scheduled scan
_REMEDY = (
    'Write {"channels": [{"notifier": "package.module.Class", "kwargs": {…}}]}, or delete the Variable: what happens '
    "is then only in the log and on the page."
)
_T = TypeVar("_T", bound=BaseModel)
_Number = Annotated[float, Field(strict=True, ge=0, lt=10_000)]


class NotificationChannel(BaseModel):
    """One channel: an installed notifier of Airflow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    notifier: str
    """Its class, as `package.module.Class`."""
    kwargs: dict[str, Any] = {}
    """Its arguments. Each text is a template with `alert`."""
    name: str = Field(default="", pattern=r"^[\w.-]{1,100}$")
    """By default the name of the class."""
    kinds: list[NotificationKind] | None = None
    """The kinds that it wants; None: all."""
    clusters: list[str] | None = None
    """The clusters that it wants; None: all."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("notifier"), str) and not data.get("name"):
            return {**data, "name": data["notifier"].rpartition(".")[2]}
        return data

    def wants(self, notification: Notification) -> bool:
        return (self.kinds is None or notification.kind in self.kinds) and (
            self.clusters is None or notification.cluster in self.clusters
        )


class _Setting(BaseModel):
    """The Variable. Its channels are validated one by one: an error in one does not affect the others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    channels: list[Any]
    expires_before_minutes: _Number = 60
    not_finalized_days: _Number = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationChannels:
    """What the Variables say."""

    channels: tuple[NotificationChannel, ...] = ()
    problems: tuple[str, ...] = ()
    """Why others cannot be used, as sentences."""
    times: NotificationTimes = field(default_factory=NotificationTimes)


def parse_channels(setting: object, scan_setting: object) -> NotificationChannels:
    """Return the channels of both Variables: texts in JSON, objects, or None."""
    channels: dict[str, NotificationChannel] = {}
    problems: list[str] = []
    times = NotificationTimes()
    try:
        if (data := _object(VARIABLE, setting)) is not None:
            found = _valid(VARIABLE, "", _Setting, data)
            times = NotificationTimes(
                before_expiry_s=found.expires_before_minutes * 60.0, not_finalized_s=found.not_finalized_days * 86_400.0
            )
            for number, entry in enumerate(found.channels):
                try:
                    _add(channels, _valid(VARIABLE, f"channels[{number}]", NotificationChannel, entry))
                except UserError as error:
                    problems.append(str(error))
    except UserError as error:
        problems.append(str(error))
    try:
        if (data := _object(SCAN_VARIABLE, scan_setting)) is not None:
            named = {**data, "kinds": list(SCAN_KINDS), "name": SCAN_VARIABLE}
            _add(channels, _valid(SCAN_VARIABLE, "", NotificationChannel, named))
    except UserError as error:
        problems.append(str(error))
    return NotificationChannels(channels=tuple(channels.values()), problems=tuple(problems), times=times)


def unusable(variable: str, why: str) -> UserError:
    return UserError(f"Airflow Variable {variable} cannot be used: {why}.", remedy=_REMEDY)


def _add(channels: dict[str, NotificationChannel], channel: NotificationChannel) -> None:
    if channel.name in channels:
        raise unusable(VARIABLE, f"two channels have the name {channel.name}; give each channel a name")
    channels[channel.name] = channel


def _object(variable: str, setting: object) -> Mapping[str, Any] | None:
    try:
        data = parse_json(setting) if isinstance(setting, str) and setting else setting
    except ValueError:
        raise unusable(variable, "it is not JSON") from None
    if data and not isinstance(data, Mapping):
        raise unusable(variable, "it is not a JSON object")
    return data or None  # type: ignore[return-value]


def _valid(variable: str, where: str, model: type[_T], data: object) -> _T:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        for part in problem["loc"]:
            where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
        message = problem["msg"].removeprefix("Input should be ")
        match problem["type"]:
            case "extra_forbidden":
                why = f"{where} is an unknown key"
            case "missing":
                why = f"{where} is missing"
            case _:
                must = f"must be {message}" if message != problem["msg"] else f"{message[0].lower()}{message[1:]}"
                why = f"{where or 'it'} {must}"
        raise unusable(variable, why) from None
