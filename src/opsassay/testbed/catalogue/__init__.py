"""The fault catalogue: one file per family says all that there is to say of a type but how a substrate carries it out."""
