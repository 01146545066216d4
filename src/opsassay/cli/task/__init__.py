"""The commands of `opsassay task`, one file each."""
