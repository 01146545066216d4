"""How far it spread: from the root along the rules, each hop through the gates."""
