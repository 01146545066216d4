"""Cost data in the columns of FOCUS 1.2, made from a seed."""
