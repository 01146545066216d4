"""HTTP/1.1 on a listening socket, limited in size, time and number of connections; one request per connection."""
