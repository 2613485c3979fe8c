"""Integrations with torch. Only torch's entry points, and code that found torch loaded, import them."""
