"""The procedures of the house, each defined once as data."""
