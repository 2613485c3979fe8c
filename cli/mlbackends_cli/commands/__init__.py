"""Tell what is in this machine, and what of it machine learning can really use.

Every answer has a presence level: absent, found (a file is there), loadable (it opens and
answers), usable (it computed something right). What is not usable has a reason.

Start with:
  backends info                        what is here, on one page
  backends info cudnn                  every copy of one library, and which one wins
  backends info --format json          the same for a program
  backends info --get cpu.capability   one bare value for a script
  backends info --require 'cudnn>=9'   exit 1 and say why, where that is not so
"""

# One file for each command, and a folder for each group of commands.
FOLDERS_ARE_ENTRIES = True
