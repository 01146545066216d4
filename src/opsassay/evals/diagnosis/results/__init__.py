"""Results over many runs: pages, repeats and rewards."""
