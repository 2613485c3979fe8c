"""One machine: what it has, what is wrong with it, and what uses it: commands, text, page and chart."""
