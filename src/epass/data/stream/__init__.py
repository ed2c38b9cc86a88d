"""What streams: the images of each step, augmented, from memory or from disk."""
