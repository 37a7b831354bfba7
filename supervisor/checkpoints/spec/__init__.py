"""What a save must hold, written down before there is one, and compared with a real one in both directions."""
