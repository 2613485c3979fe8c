/* Open the library of attention as ctypes does, and name the levels that run: open_library FILE. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(int count, char **words) {
  void *library = dlopen(count > 1 ? words[1] : "", RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const char *(*name)(int32_t) =
      (const char *(*)(int32_t))dlsym(library, "mlbackends_attention_level_name");
  int32_t (*runs)(int32_t) = (int32_t (*)(int32_t))dlsym(library, "mlbackends_attention_level_runs");
  if (!name || !runs) return fprintf(stderr, "%s\n", dlerror()), 1;
  for (int32_t level = 0; name(level); level++)
    if (runs(level)) puts(name(level));
  return 0;
}
