"""The nouns: records, reasons, errors, and the registry. They import nothing else of ours."""
