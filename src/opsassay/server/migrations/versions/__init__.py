"""The versions of the platform's database."""
