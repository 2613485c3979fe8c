"""What `sdpa check` runs in processes of their own: makers of values, judges of results, backends."""
