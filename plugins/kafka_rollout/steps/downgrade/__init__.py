"""The contents and the metadata logs of a downgrade."""
