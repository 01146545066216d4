"""The nouns: frozen, versioned models without behaviour; docs/architecture.md lists them."""
