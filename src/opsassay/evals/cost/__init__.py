"""Cost tasks: questions over cost data, anomalies in it, and live systems that overspend."""
