"""What a program finds on its path: files that stand alone, and import nothing of ours."""
