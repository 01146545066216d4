"""The domain ciso: an agent writes policies, which are judged on clusters or hosts ("worlds") that it never saw."""
