"""The commands of `opsassay system`, one file each."""
