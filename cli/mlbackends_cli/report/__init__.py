"""What is in this machine, what is wrong with it, and what uses it: commands, text, page and chart."""
