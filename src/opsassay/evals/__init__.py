"""Tasks of every domain, and the runner that gives them to solvers and keeps what came out."""
