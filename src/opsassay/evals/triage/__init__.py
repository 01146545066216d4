"""Prioritise: an alert storm is sorted into groups, noise, and an order by the users' harm."""
