"""The procedures, each defined once as data."""
