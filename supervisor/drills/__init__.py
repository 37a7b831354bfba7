"""Drills: the way back tried out before it is needed, in a scratch place, with the time that each part took."""
