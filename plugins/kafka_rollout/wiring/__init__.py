"""Opens the ports of a cluster with the real clients and files. The only room that knows all others below it."""
