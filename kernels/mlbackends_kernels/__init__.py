"""One file per attention backend: a file's name is the word that chooses it.

This folder is a registry. ``mlbackends.base.registry`` lists its files and loads one by name;
nothing here is imported by hand, so adding a backend adds a file and removing it deletes one.
"""
