"""The commands of `opsassay trace`, one file each."""
