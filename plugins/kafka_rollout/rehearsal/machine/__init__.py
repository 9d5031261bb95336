"""Outside: files, processes and network namespaces of this machine."""
