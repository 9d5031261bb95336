"""Outside: the directories of nodes."""
