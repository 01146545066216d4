"""One thin file per command; heavy libraries are imported inside the command that needs them."""
