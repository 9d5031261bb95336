"""Outside: files, the clock, ports, processes, signals, the environment, page templates."""
