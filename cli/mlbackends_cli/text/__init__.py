"""Text for people: what every command and every format uses to write it."""
