"""Leaderboards: many agents on the same tasks, with what may be said of their order and no more."""
