#!/bin/sh
# Mend what keeps Linux and attention from AVX-512 BF16 and AMX on the Bochs that bochs.py names. Run it at the top of its sources.
#
# Linux gives tiles where the CPU has IA32_XFD only: CPUID tells of it, two registers hold what is off and what was
# refused for it, and an instruction that loads a tile which is off is refused. A switch of threads must keep all sixteen
# rows of a tile, with rows and bytes a row each in its place, and must see tiles that are in use. The latter half of
# what is rounded to bfloat16 comes from the latter register's beginning.
set -eu
cd bochs/cpu

refused='  if (BX_CPU_THIS_PTR amx->xfd[0] != 0) {\
    BX_CPU_THIS_PTR amx->xfd[1] = BX_CPU_THIS_PTR amx->xfd[0];\
    exception(BX_NM_EXCEPTION, 0);\
  }'
sed -i "189a\\
$refused
211a\\
$refused" avx/amx.cc
sed -i '34s/start_row(0)/start_row(0), tile_use_tracker(0), xfd()/
96a\
\
  Bit64u xfd[2]; // IA32_XFD, IA32_XFD_ERR' avx/amx.h
sed -i '70s/(n))/(n - DWORD_ELEMENTS(len)))/' avx/avx512_bf16.cc
sed -i '540a\
    if (is_cpu_extension_supported(BX_ISA_AMX))\
      leaf->eax |= (1<<4);' cpuid.cc
sed -i '1894s/;/ | BX_XSAVE_XFD_SUPPORT;/' crregs.cc
sed -i '28a\
#include "avx/amx.h"
119a\
  msr_desc[BX_MSR_IA32_XFD] = new MSR_Descriptor("MSR_IA32_XFD", BX_ISA_AMX, ~Bit64u(BX_XCR0_XTILEDATA_MASK));\
  msr_desc[BX_MSR_IA32_XFD_ERROR] = new MSR_Descriptor("MSR_IA32_XFD_ERR", BX_ISA_AMX, ~Bit64u(BX_XCR0_XTILEDATA_MASK));
382a\
    case BX_MSR_IA32_XFD:\
    case BX_MSR_IA32_XFD_ERROR:\
      val64 = BX_CPU_THIS_PTR amx->xfd[index - BX_MSR_IA32_XFD];\
      break;
1072a\
    case BX_MSR_IA32_XFD:\
    case BX_MSR_IA32_XFD_ERROR:\
      BX_CPU_THIS_PTR amx->xfd[index - BX_MSR_IA32_XFD] = val_64;\
      break;' msr.cc
sed -i '1155s/\.rows/.bytes_per_row/
1156s/\.bytes_per_row/.rows/
1188s/BX_TILE_REGISTERS/BX_TILE_MAX_ROWS/
1199s/BX_TILE_REGISTERS/BX_TILE_MAX_ROWS/
1216s/== 0.*/!= 0);/' xsave.cc
