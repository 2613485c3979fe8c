"""What a program finds on its path: independent files, which import nothing of ours."""
