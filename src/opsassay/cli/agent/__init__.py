"""The commands of `opsassay agent`, one file each."""
