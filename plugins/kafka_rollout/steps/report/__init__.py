"""The report of a run, from its history and one last observation."""
