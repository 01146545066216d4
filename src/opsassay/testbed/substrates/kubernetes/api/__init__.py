"""What the API of a cluster is asked, and what its objects say: requests, watches, readings, who owns whom."""
