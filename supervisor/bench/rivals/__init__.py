"""The same job under relight, under a bare restart and under torchrun, with the same clock."""
