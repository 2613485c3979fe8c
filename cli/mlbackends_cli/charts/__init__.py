"""Charts as SVG without a script, drawn from records. Colours are left to the page: shapes have classes."""
