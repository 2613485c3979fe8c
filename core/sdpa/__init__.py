"""Scaled-dot-product attention: who can compute it, who may, and who does."""
