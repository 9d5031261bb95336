"""Outside: Java and its processes."""
