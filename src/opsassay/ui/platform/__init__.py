"""The pages of the platform, over the data of its server."""
