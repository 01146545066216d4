"""Anomaly tasks: solvers find, and rank, anomalies that were planted into cost data."""
