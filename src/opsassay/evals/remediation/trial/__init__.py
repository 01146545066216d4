"""One trial, from the order of its process to what its operator leaves."""
