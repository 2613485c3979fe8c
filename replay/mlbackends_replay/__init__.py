"""Public issues as tests of `backends resolve`: the environment of each, rebuilt from real wheels."""
