"""Agent traces: a proxy that records, replays and edits model calls; importers and exporters of trace formats."""
