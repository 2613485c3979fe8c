"""Ask who can compute scaled-dot-product attention, why not, whether it is right, and how fast.

A problem is given in words: --shape B,H,L,E and what else it asks for. A list with commas stands for
each of its members, so that a command may be a whole grid of problems; --problems reads them from a
file, one a line in the same words, # before a comment.

Examples:
  backends sdpa explain --shape 2,8,1024,64                 who can, and why not
  backends sdpa explain --shape 2,8,1024,64 --device sm90   the same for a GPU that is not here
  backends sdpa list                                        what each takes
  backends sdpa check --shape 2,8,1024,64                   right, and how fast
  backends sdpa check --shape 2,8,1024,64 --backward        the same for gradients
  backends sdpa check --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --peers
  backends sdpa check --problems FILE --require flash_cpu --format junit
  backends sdpa bench --shape 2,8,1024,64 --peers           beside torch's, in turn
  backends sdpa bench --shape 1,8,512,64 --shape 1,8,2048,64 --plot speed.svg
"""

from mlbackends_cli.lazy import FolderGroup

command = FolderGroup(__name__, name="sdpa")
