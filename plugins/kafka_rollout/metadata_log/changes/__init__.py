"""Outside: the metadata logs of stopped nodes, which it trims and replaces."""
