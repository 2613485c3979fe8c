"""Records: what is passed around and printed."""
