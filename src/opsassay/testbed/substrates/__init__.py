"""substrates."""
