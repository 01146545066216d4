"""Controls of a cluster, the worlds that are made of them, and the repository of policies."""
