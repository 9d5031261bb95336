"""Selection, configuration, estimate and result of a rehearsal."""
