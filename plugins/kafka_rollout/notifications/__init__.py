"""Notifications: which are due, their channels, and what was sent.

Begin with:
- `due.due_notifications`: the notifications that a cluster's histories need now
- `due.Notification`: one notification; the same event has the same key
- `channels.parse_channels`: the channels of an Airflow Variable
- `store.sent.SqlNotifications`: what was sent on which channel
"""
