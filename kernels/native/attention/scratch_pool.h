/* Memory of threads, kept from call to call. */
#pragma once
#include <stdint.h>

/* Take at least so many bytes, aligned to 64; null where memory lacks. Give them back with `give_scratch`. */
char *take_scratch(int64_t bytes);
void give_scratch(char *memory);
