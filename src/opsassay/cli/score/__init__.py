"""The commands of `opsassay score`, one file each."""
