"""The domain finops: questions over cost data, anomalies in it, and live systems that overspend."""
