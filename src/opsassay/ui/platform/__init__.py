"""The pages of the platform, over what its server tells them."""
