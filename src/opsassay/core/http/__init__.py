"""HTTP/1.1 on a listening socket within bounds of size, time and number, one request a connection."""
