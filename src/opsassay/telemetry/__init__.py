"""Datapacks and where they come from: schema, reading and writing, masking, locked SQL, OTLP intake."""
