"""How a fault is carried out: `mechanisms.py` is the table, `inject.py` its life, `changes.py` its undo in the cluster."""
