"""Outside: the files of the message definitions."""
