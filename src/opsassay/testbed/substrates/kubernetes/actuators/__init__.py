"""How a fault is carried out: `ways.py` is the table, `inject.py` the life of one, `changes.py` its undo in the cluster."""
