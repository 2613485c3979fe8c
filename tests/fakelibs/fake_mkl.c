// An MKL that only has a verbose mode. Compiled with
//   -DREADER     the mode can be read by mkl_serv_iface_verbose_mode, as in every release that was looked at
//   -DLEVELS=2   how many modes there are: 2 until MKL 2021, 3 since
//   -DNO_SWITCH  without the function that sets it, as MKL before 2013 and subsets of it
//   -DWRONG=x    what the reader returns instead of the mode's address
// fake_level() tells the mode, fake_sets() how often it was set.
#include <stdlib.h>
#include <string.h>

#ifndef LEVELS
#define LEVELS 3
#endif

static int mode = -1, sets;

static void start(void) {
    const char *text = getenv("MKL_VERBOSE");
    if (mode < 0) mode = text && (!strcmp(text, "1") || !strcmp(text, "2")) ? text[0] - '0' : 0;
}

#ifndef NO_SWITCH
int MKL_Verbose(int wanted) {
    start();
    sets++;
    return wanted >= 0 && wanted < LEVELS ? (mode = wanted) : -1;
}
#endif

#ifdef WRONG
void *mkl_serv_iface_verbose_mode(void) { return (void *)(WRONG); }
#elif defined READER
int *mkl_serv_iface_verbose_mode(void) {
    start();
    return &mode;
}
#endif

int fake_level(void) { start(); return mode; }
int fake_sets(void) { return sets; }
void fake_set(int wanted) { mode = wanted; }
