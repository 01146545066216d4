"""Reproductions of tables and audits of published papers: scripts of the checkout, each run by ``python -m``."""
