"""Whether packages load here, from files alone: what the dynamic loader would do for each shared object."""
