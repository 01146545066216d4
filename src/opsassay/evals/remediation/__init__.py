"""The domain sre: trials of agents that repair a live system, judged by everything that happens to it."""
