"""PromQL beside a real Prometheus: drawn queries, samples, and how fast both answer."""
