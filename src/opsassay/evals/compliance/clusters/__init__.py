"""Controls of clusters, test clusters made from them, and the repository of policies."""
