// A stand-in for libnvrtc.so.13 that compiles nothing: a cubin is 128 bytes that begin like one. See README.md.
#include "steering.h"

typedef int Result;

const char *nvrtcGetErrorString(Result result) { return result ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
Result nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
static const int CHIPS[] = {75, 80, 86, 89, 90, 100, 103, 120};
Result nvrtcGetNumSupportedArchs(int *count) { return *count = sizeof CHIPS / sizeof *CHIPS, 0; }
Result nvrtcGetSupportedArchs(int *chips) { return memcpy(chips, CHIPS, sizeof CHIPS), 0; }
Result nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char **texts,
                          const char **names) {
    (void)source, (void)name, (void)headers, (void)texts, (void)names;
    return *program = malloc(1), 0;
}
Result nvrtcDestroyProgram(void **program) { return free(*program), *program = NULL, 0; }
Result nvrtcAddNameExpression(void *program, const char *name) { return (void)program, (void)name, 0; }
Result nvrtcCompileProgram(void *program, int count, const char **options) {
    (void)program, (void)count, (void)options;
    behave();
    return (Result)value("FAKE_NVRTC", 0);
}
Result nvrtcGetCUBINSize(void *program, size_t *size) { return (void)program, *size = 128, 0; }
Result nvrtcGetCUBIN(void *program, char *code) {
    (void)program;
    memset(code, 0, 128);
    memcpy(code, "\x7f" "ELF", 4);
    return 0;
}
Result nvrtcGetProgramLogSize(void *program, size_t *size) { return (void)program, *size = 1, 0; }
Result nvrtcGetProgramLog(void *program, char *log) { return (void)program, *log = 0, 0; }
