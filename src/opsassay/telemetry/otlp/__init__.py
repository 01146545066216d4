"""OTLP/HTTP intake: a receiver process that spools what it acknowledges, and the sealing of spools into tables.

``python -m opsassay.telemetry.otlp --state DIR`` runs the receiver; `client.ReceiverControl` opens and closes recording
sessions on it; `seal.decode_spool` and `seal.split_windows` turn a recorded folder into tables.
"""
