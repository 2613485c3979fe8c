"""The switches of torch.backends: their table, what holds their values, and how they are set and read."""
