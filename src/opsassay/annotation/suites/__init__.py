"""Suites of incidents: chosen, published, fetched, and compared with other labels."""
