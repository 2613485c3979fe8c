"""A small program in C that makes a call of MKL again, with the sizes and options that its line tells.

The arguments go in Fortran's way, all by address, as MKL prints them whichever interface was called;
its own copies take values. What stands behind addresses is not told: matrices get a heavy diagonal and
small numbers elsewhere, scalars are 1.
"""

import re
from typing import NamedTuple

from mlbackends.model.signature import Derived, RoutineSignature
from mlbackends.tracing.formats.mkl.fft import transform
from mlbackends.tracing.formats.mkl.matrices import elements, is_whole
from mlbackends.tracing.formats.mkl.routines import routine

_TYPES = {"s": "float", "d": "double", "c": "float _Complex", "z": "double _Complex"}
_MIXED = {"c64": "c", "c128": "z"}
"""SCNRM2, DZGEMM and the like begin with the real type."""
_BYTES = {"int": 4, "float": 4, "double": 8, "float _Complex": 8, "double _Complex": 16}
_SCALARS = frozenset({"alpha", "beta", "anorm", "rcond", "abstol", "vl", "vu"})
_INTEGERS = frozenset({"ipiv", "jpvt", "iwork", "info", "isuppz", "ifail", "ilo", "ihi", "rank"})
_NAME = re.compile(r"(?:MKL_)?([SDCZ])[A-Z0-9]+")
_MOST_BYTES = 1 << 34
_COPY = re.compile(r"MKL_([SD])([OI]MATCOPY)")
_WORK = ("work", "rwork", "iwork")
# Linkers drop libm where the program itself takes nothing from it, yet MKL's libraries need it loaded.
_START = "/* cc call.c -O2 -Wl,--no-as-needed -lmkl_rt -lm && ./a.out */"


class Program(NamedTuple):
    """A program, "" where there is none, and what it does not tell, or why there is none."""

    text: str
    notes: tuple[str, ...] = ()


def program(call: RoutineSignature, derived: Derived) -> Program:
    """Return the program for a call of BLAS, LAPACK or a transform."""
    if call.routine == "FFT":
        return _transform(derived)
    name = call.routine
    arguments = derived.arguments
    if "1" in arguments or not arguments:
        return Program("", (f"the arguments of {name} are not known by name here",))
    if any("?" in value for value in arguments.values()):
        return Program("", (f"a size of {name} was never set",))
    copy = _COPY.fullmatch(name)
    if copy is not None:
        called = f"MKL_{copy[1].capitalize()}{copy[2].lower()}"
        return _by_value(called, routine(name)[0], copy[1], arguments)
    found = _NAME.fullmatch(name)
    if found is None or name.startswith("MKL_") or "BATCH" in name or "_" in name:
        return Program("", (f"no program can be made for {name}: its arguments are not all told",))
    letter = _MIXED.get(derived.dtype, found[1].lower())
    return _fortran(name.lower(), routine(name)[0], _TYPES[letter], arguments)


def _fortran(name: str, stem: str, element: str, arguments: dict[str, str]) -> Program:
    passed = []
    for argument, value in arguments.items():
        if argument == "result":
            continue
        if value.isalpha():
            passed.append(f'"{value}"')
        elif is_whole(value):
            passed.append(f"&(int){{{value}}}")
        elif argument in _SCALARS:
            passed.append(f"&({element}){{1}}")
        else:
            passed.append(argument)
    head = ["#include <complex.h>", f"void {name}_();"]
    return _program(head, f"{name}_({', '.join(passed)})", stem, element, arguments)


def _by_value(name: str, stem: str, letter: str, arguments: dict[str, str]) -> Program:
    passed = [
        f"'{value}'" if value.isalpha() else argument if value.startswith("0x") else value
        for argument, value in arguments.items()
    ]
    element = _TYPES[letter.lower()]
    call = f"{name}({', '.join(passed)})"
    return _program(["#include <mkl.h>"], call, stem, element, arguments)


def _program(
    head: list[str], call: str, stem: str, element: str, arguments: dict[str, str]
) -> Program:
    """Return a program that makes the arrays, makes the call, and says how long it took."""
    arrays = {
        name: elements(stem, name, arguments)
        for name, value in arguments.items()
        if value.startswith("0x") and name not in _SCALARS and name != "result"
    }
    kinds = {name: "int" if name in _INTEGERS else element for name in arrays}
    total = sum(count * _BYTES[kinds[name]] for name, count in arrays.items())
    if total > _MOST_BYTES:
        why = f"its arrays take {total / 2**30:.1f} GiB, and none is made for more than 16 GiB"
        return Program("", (why,))
    lines = []
    for name, count in arrays.items():
        lines.append(f"    {kinds[name]} *{name} = calloc({count}, sizeof *{name});")
        if name == "ipiv":
            lines.append(f"    for (long i = 0; i < {count}; i++) ipiv[i] = i + 1;")
        if kinds[name] != "int" and name not in _WORK:
            step = abs(int(arguments.get(f"ld{name}", "0"))) + 1
            lines.append(
                f"    for (long i = 0; i < {count}; i++)"
                f" {name}[i] = i % {step} ? 0.001 * (i % 7) : {step};"
            )
    text = [
        _START,
        *head,
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#include <time.h>",
        "int main(void) {",
        *lines,
        "    for (int run = 0; run < 3; run++) {  /* the first one sets MKL up */",
        "        struct timespec before, after;",
        "        clock_gettime(CLOCK_MONOTONIC, &before);",
        f"        {call};",
        "        clock_gettime(CLOCK_MONOTONIC, &after);",
        "        double seconds = after.tv_sec - before.tv_sec;",
        '        printf("%g ms\\n", seconds * 1e3 + (after.tv_nsec - before.tv_nsec) / 1e6);',
        "    }",
        "}",
    ]
    notes = ("the contents of arrays and scalars are not in the line: they are made up",)
    return Program("\n".join(text) + "\n", notes)


def _transform(derived: Derived) -> Program:
    found = transform(derived.arguments.get("descriptor", ""))
    if found is None or found.precision not in {"s", "d"}:
        return Program("", ("the transform's descriptor cannot be read",))
    precision = "DFTI_SINGLE" if found.precision == "s" else "DFTI_DOUBLE"
    domain = "DFTI_COMPLEX" if found.domain == "c" else "DFTI_REAL"
    lengths, rank = ", ".join(map(str, found.lengths)), len(found.lengths)
    sizes = f"{rank}, (MKL_LONG[]){{{lengths}}}" if rank > 1 else f"1, (MKL_LONG){lengths}"
    points = found.count
    for length in found.lengths:
        points *= length
    if points * 32 > _MOST_BYTES:
        return Program("", ("the transform would take more than 16 GiB",))
    lines = [
        _START,
        "#include <mkl_dfti.h>",
        "#include <stdlib.h>",
        "int main(void) {",
        "    DFTI_DESCRIPTOR_HANDLE h;",
        f"    void *x = calloc({2 * points + 64}, 16), *y = calloc({2 * points + 64}, 16);",
        f"    DftiCreateDescriptor(&h, {precision}, {domain}, {sizes});",
    ]
    if found.count > 1:
        length = points // found.count
        lines += [
            f"    DftiSetValue(h, DFTI_NUMBER_OF_TRANSFORMS, (MKL_LONG){found.count});",
            f"    DftiSetValue(h, DFTI_INPUT_DISTANCE, (MKL_LONG){length});",
            f"    DftiSetValue(h, DFTI_OUTPUT_DISTANCE, (MKL_LONG){length});",
        ]
    if found.domain == "r":
        lines.append("    DftiSetValue(h, DFTI_CONJUGATE_EVEN_STORAGE, DFTI_COMPLEX_COMPLEX);")
    if not found.in_place:
        lines.append("    DftiSetValue(h, DFTI_PLACEMENT, DFTI_NOT_INPLACE);")
    compute = "DftiComputeBackward" if found.direction == "b" else "DftiComputeForward"
    target = "x" if found.in_place else "x, y"
    lines += [
        f"    return DftiCommitDescriptor(h) || {compute}(h, {target});",
        "}",
    ]
    return Program("\n".join(lines) + "\n", ("strides and scales are the descriptor's defaults",))
