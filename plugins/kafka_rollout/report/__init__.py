"""The report of a run as typed values."""
