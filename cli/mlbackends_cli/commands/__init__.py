"""Tell what is in this machine, and what of it machine learning can really use.

Every answer has a presence level: absent, found (a file is there), loadable (it opens and
answers), usable (it computed something right). What is not usable has a reason.

Look:
  backends info                               what is here, on one page
  backends info torch cudnn                   everything about two things
  backends top                                what uses it now
  backends snapshot then.json                 keep it
  backends diff then.json -                   what has changed since

Judge:
  backends doctor                             what is wrong, and its cure
  backends audit --policy gpu.toml            what is not as you expect it
  backends explain cudnn.benchmark            what a switch or a code means

Attention:
  backends sdpa explain --shape 2,8,1024,64   who can, or why not
  backends sdpa check --shape 2,8,1024,64     is it right, and how fast

Traces:
  backends trace onednn -- python train.py    what oneDNN runs; also mkl, all
  backends trace show backends-trace.log      where the time went

Switches:
  backends flags list --changed               which are not at their default
  backends run --set cudnn.benchmark=true -- python train.py
"""
