"""The format of answers to cost tasks."""
