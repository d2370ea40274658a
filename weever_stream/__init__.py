"""weever_stream."""
