"""Datapacks and their sources: schema, reading and writing, masking, locked SQL, importers, OTLP intake."""
