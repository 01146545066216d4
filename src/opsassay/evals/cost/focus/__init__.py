"""Cost data in the columns of FOCUS 1.2, generated from a seed or read from an export."""
