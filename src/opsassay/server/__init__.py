"""The platform: leaderboards of many agents over many machines. Folders store its data, a database indexes them."""
