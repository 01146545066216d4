"""The commands of `opsassay new`, one file each."""
