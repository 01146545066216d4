"""How pods of ours are reached from outside: orders with an end, recording sessions, one lock."""
