"""The order in which notifications are sent, and which of them wait for the service of a channel.

A service that does not respond would delay every notification by its timeout, so its channel is left out. One that
refuses a single message, for example because of its length or of a template, gets the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_rollout.notifications.channels import NotificationChannel
from kafka_rollout.notifications.due import Notification, Urgency

_URGENCIES = list(Urgency)


def send_each(
    notifications: Iterable[Notification],
    channels: Iterable[NotificationChannel],
    send: Callable[[Notification, NotificationChannel], bool],
) -> None:
    """Send the most urgent notifications first, and of those the oldest.

    `send`: returns whether the channel can get others in this turn.
    """
    left_out: set[str] = set()
    for notification in sorted(notifications, key=lambda one: (_URGENCIES.index(one.urgency), one.at)):
        for channel in channels:
            if channel.name not in left_out and channel.wants(notification) and not send(notification, channel):
                left_out.add(channel.name)
