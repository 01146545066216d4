"""The search for paths along which a fault spread: from the root by rules, each hop tested by the gates."""
