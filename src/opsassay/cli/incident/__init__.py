"""The commands of `opsassay incident`, one file each."""
