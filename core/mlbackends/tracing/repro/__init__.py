"""How to run a call of oneDNN again by its own benchdnn."""
