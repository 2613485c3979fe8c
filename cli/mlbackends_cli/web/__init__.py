"""What an HTML page is made of: style, script, and elements from records."""
