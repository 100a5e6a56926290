"""Sidelight: contextual bandits that start from a confounded log."""
