"""Outside: the process that submits the Spark job."""
