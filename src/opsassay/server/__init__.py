"""The platform: one board for many agents over many machines. Folders are the truth, the database an index over them."""
