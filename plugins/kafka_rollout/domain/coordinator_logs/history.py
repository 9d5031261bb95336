"""Events in the history of a cluster's scheduled scans."""

from __future__ import annotations

SCANNED, ALERT = "scanned", "alert"  # kinds of events
