"""Scaled-dot-product attention: which backends support a problem, are they correct, and how fast.

A problem is described by options: --shape B,H,L,E and further properties. A list with commas stands for
each of its members, so that one command can describe a whole grid of problems. --problems reads problems
from a file: one per line, in the same words, with comments after #.

Examples:
  backends sdpa explain --shape 2,8,1024,64                 which backends, and why not others
  backends sdpa explain --shape 2,8,1024,64 --device sm90   the same for another GPU
  backends sdpa list                                        what each backend supports
  backends sdpa check --shape 2,8,1024,64                   correctness and speed
  backends sdpa check --shape 2,8,1024,64 --backward        the same for gradients
  backends sdpa check --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --peers
  backends sdpa check --problems FILE --require flash_cpu --format junit
  backends sdpa bench --shape 2,8,1024,64 --peers           compared with torch's
  backends sdpa bench --shape 1,8,512,64 --shape 1,8,2048,64 --plot speed.svg
"""

from mlbackends_cli.lazy import FolderGroup

command = FolderGroup(__name__, name="sdpa")
