"""Diagnosis methods without an LLM; they read telemetry only."""
