"""Programs that print as oneDNN does."""

from __future__ import annotations

import shutil
import subprocess

import pytest

# printer WHAT...: "trace N" and "text N" print N lines, "part TEXT" prints without a line's end,
# "pieces" prints a line as oneDNN 3.2 does its prim_template, "die N" sends itself a signal, "wait"
# waits for one, "fork" goes on in a child as well.
PRINTER = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
    int is_child = 0;
    for (int each = 1; each < count; ++each) {
        const char *word = words[each];
        int number = each + 1 < count ? atoi(words[each + 1]) : 0;
        if (!strcmp(word, "trace"))
            for (int line = 0; line < number; ++line) {
                printf("onednn_verbose,v1,primitive,exec,cpu,matmul,brg,,a:f32,b,c,8:8,%d.%d\n",
                       is_child, line);
                fflush(stdout);
            }
        if (!strcmp(word, "text"))
            for (int line = 0; line < number; ++line) printf("text %d\r\n", line);
        if (!strcmp(word, "part")) printf("%s", words[each + 1]);
        if (!strcmp(word, "pieces")) {
            printf("onednn_verbose,info,prim_template:");
            printf("%soperation,exec_time\n", "timestamp,");
        }
        fflush(stdout);
        if (!strcmp(word, "die")) kill(getpid(), number);
        if (!strcmp(word, "wait")) pause();
        if (!strcmp(word, "fork") && !fork()) is_child = 1;
    }
    if (!is_child) while (wait(0) > 0) {}
    return 0;
}
"""


@pytest.fixture(scope="session")
def printer(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to make a program with")
    folder = tmp_path_factory.mktemp("printer")
    (folder / "printer.c").write_text(PRINTER)
    program = str(folder / "printer")
    subprocess.run(["cc", "-O1", "-o", program, str(folder / "printer.c")], check=True)
    return program
