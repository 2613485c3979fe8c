"""The switches of torch.backends: commands and text."""
