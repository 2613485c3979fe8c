"""Show what hardware and libraries this machine has, and what machine learning can really use.

Every library and device has a presence level: absent, found (a file exists), loadable (it opens and
answers) or usable (it computed a correct result). If something is not usable, the report has the reason.

Look:
  backends info                               what was found, on one page
  backends top                                what uses the machine now
  backends bench                              how fast it is
  backends snapshot then.json                 save a report
  backends diff then.json -                   what has changed since

Judge:
  backends doctor                             what is wrong, and the fix
  backends resolve torch                      whether it loads, and why not
  backends audit --policy gpu.toml            what violates your policy
  backends conform                            whether numbers are right

Attention:
  backends sdpa explain --shape 2,8,1024,64   which backends support it
  backends sdpa check --shape 2,8,1024,64     is it correct, and how fast

Traces:
  backends trace onednn -- python train.py    what oneDNN runs; also mkl, all
  backends trace show backends-trace.log      where the time went

Switches:
  backends flags list --changed               which differ from their default
  backends run --set cudnn.benchmark=true -- python train.py

More:
  backends explain cudnn.benchmark            what a switch or a code means
  backends fleet summarize reports/           how machines differ
  backends schema report                      the schema of its JSON
  backends mcp                                the same for assistants
  backends completion bash                    a script for your shell
  backends help trace show                    the help of a command
"""
