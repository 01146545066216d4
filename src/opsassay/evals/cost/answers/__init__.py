"""The answers of cost tasks."""
