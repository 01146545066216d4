"""Results over many runs: result pages, summaries over repeats, and rewards for training."""
