"""The base of all other packages: models of artefacts, errors, registries, logs, texts, untrusted input."""
