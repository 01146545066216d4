"""Read-only APIs of observability backends over the telemetry of one recorded incident."""
