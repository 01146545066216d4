"""OpsAssay systems as threads of one process."""
