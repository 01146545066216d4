"""The domain diagnosis: solvers find the root causes of recorded incidents."""
