"""The commands of `opsassay server`, one file each."""
