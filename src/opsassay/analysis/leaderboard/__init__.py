"""Leaderboards: many agents on the same tasks, with ranks only where differences are significant."""
