"""Groups and their conversion between protocols, the monitor of a group."""
