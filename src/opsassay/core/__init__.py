"""What every stage stands on: the schema, errors, registries, logs, texts, untrusted input."""
