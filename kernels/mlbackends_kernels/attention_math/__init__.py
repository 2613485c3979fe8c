"""The plain formula of attention in numpy, forward and backward."""
