"""The lines of oneDNN, from mkldnn 0.x to oneDNN 3.13: their grammar and what follows from them."""
