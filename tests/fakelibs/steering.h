// What the fakes have in common: values and behaviour from the environment.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((unused)) static const char *text_of(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text ? text : otherwise;
}

static unsigned value(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

// What NAME.INDEX says of one device; without it, what NAME says of all.
__attribute__((unused)) static const char *text_at(unsigned index, const char *name, const char *otherwise) {
    char one[96];
    snprintf(one, sizeof one, "%s.%u", name, index);
    return text_of(one, text_of(name, otherwise));
}

static void behave(void) {
    const char *how = getenv("FAKE_BEHAVIOUR");
    if (!how) return;
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "segfault")) raise(SIGSEGV);
    if (!strcmp(how, "noise")) {
        printf("{\"id\": 0, \"noise\": \"on stdout\"}\n");
        fflush(stdout);
        fprintf(stderr, "noise on stderr\n");
    }
}
