"""A run of 640 nodes on one machine: the real controller, agents that are only spoken for, and a console under load."""
