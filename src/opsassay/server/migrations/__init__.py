"""Migrations of the platform's database."""
