"""The platform: one leaderboard for many agents over many machines. Folders are the truth, the database their index."""
