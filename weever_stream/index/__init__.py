"""The index: order-preserving codes, the packed LT-tree with its hash index, and sets of rows."""
