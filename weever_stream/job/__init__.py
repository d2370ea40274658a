"""A job: a rule file with a source, sinks and a place for its state, read and checked without Spark."""
