"""What splits: which images keep their labels, and which are kept for the test."""
