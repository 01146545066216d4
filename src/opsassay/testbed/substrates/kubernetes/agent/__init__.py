"""What runs in pods of ours, all from one image; `__main__.py` is where each role begins."""
