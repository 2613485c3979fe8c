"""Pages that need nothing but themselves: nothing is fetched, and they read without a script."""
