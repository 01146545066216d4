"""A past incident from a team's own backends: Prometheus, Loki, and Tempo or Jaeger."""
