"""Agent traces: an HTTP proxy that records, replays and intervenes, and the formats that traces come in and go out."""
