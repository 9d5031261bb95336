"""Outside: the files of metadata logs."""
