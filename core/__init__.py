"""Hardware and machine-learning backends, inspected: a stand-alone `torch.backends` that needs no torch."""

__version__ = "0.1.0"
