"""The data models: frozen and versioned; docs/architecture.md lists them."""
