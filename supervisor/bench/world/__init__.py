"""The simulated world: machines, ranks, a store, people and clocks, from one seed, in one thread.

It gives out what a real one gives out: node states, raw log bytes, messages of ranks, files. What they mean is found by
the product, which runs in it unchanged.
"""
