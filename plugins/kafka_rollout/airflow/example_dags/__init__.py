"""Examples of DAGs that use the public operators and sensors."""
