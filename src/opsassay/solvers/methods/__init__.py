"""Algorithmic diagnosers without an LLM; they see telemetry and nothing else."""
