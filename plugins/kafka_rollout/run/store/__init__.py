"""Outside: the database, the documents of runs and scans."""
