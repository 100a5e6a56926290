"""Other libraries at the same loop, each in an environment of its own."""
