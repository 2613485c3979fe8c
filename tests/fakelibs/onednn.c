// oneDNN: version 3 multiplies, those before transpose. MAJOR, RUNTIME of its CPU, ENGINE: what making one
// returns, SPOIL: what is added to a product.
#ifndef MAJOR
#define MAJOR 3
#endif
#ifndef RUNTIME
#define RUNTIME 2
#endif
#ifndef ENGINE
#define ENGINE 0
#endif
#ifndef SPOIL
#define SPOIL 0
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
typedef struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } version_t;
const version_t *dnnl_version(void) {
    static version_t told = {MAJOR, 4, 1, "f5ff0a6de16c130053bec1a1aec3a9b826c66f78", RUNTIME, 0};
    return &told;
}
int dnnl_get_effective_cpu_isa(void) { return 0xe7; }
const char *dnnl_cpu_isa2str(int isa) {
    return isa == 0xe7 ? "cpu_isa_avx512_core_bf16" : "unknown cpu_isa";
}
int dnnl_engine_create(void **engine, int kind, size_t index) {
    *engine = (void *)1;
    return kind == 1 && index == 0 ? ENGINE : 2;
}
int dnnl_stream_create(void **stream, void *engine, unsigned flags) {
    *stream = engine;
    return flags == 1 ? 0 : 2;
}
int dnnl_primitive_create(void **primitive, void *plan) { *primitive = plan; return 0; }
int dnnl_stream_wait(void *stream) { (void)stream; return 0; }
typedef struct { int64_t rows, columns, down, right; } desc;
typedef struct { desc layout; float *data; } memory;
int dnnl_memory_create(memory **made, const desc *layout, void *engine, void *data) {
    (void)engine;
    *made = malloc(sizeof **made);
    (*made)->layout = *layout;
    (*made)->data = data;
    return 0;
}
static void describe(desc *made, const int64_t *shape, const int64_t *strides) {
    desc told = {shape[0], shape[1], strides[0], strides[1]};
    *made = told;
}
typedef struct { int which; memory *memory; } operand;
static memory *pick(int which, int count, const operand *all) {
    for (int i = 0; i < count; i++) if (all[i].which == which) return all[i].memory;
    return 0;
}
static float *at(memory *one, int row, int column) {
    return one->data + row * one->layout.down + column * one->layout.right;
}

#if MAJOR == 3
int dnnl_memory_desc_create_with_strides(desc **made, int dimensions, const int64_t *shape,
                                         int type, const int64_t *strides) {
    *made = malloc(sizeof **made);
    describe(*made, shape, strides);
    return dimensions == 2 && type == 3 ? 0 : 2;
}
int dnnl_matmul_primitive_desc_create(void **plan, void *engine, desc *a, desc *b, desc *bias,
                                      desc *c, void *attributes) {
    (void)engine; (void)a; (void)b; (void)c;
    *plan = (void *)2;
    return bias || attributes ? 2 : 0;
}
int dnnl_primitive_execute(void *primitive, void *stream, int count, const operand *all) {
    (void)primitive; (void)stream;
    memory *a = pick(1, count, all), *b = pick(33, count, all), *c = pick(17, count, all);
    for (int i = 0; i < c->layout.rows; i++)
        for (int j = 0; j < c->layout.columns; j++) {
            *at(c, i, j) = SPOIL;
            for (int k = 0; k < a->layout.columns; k++) *at(c, i, j) += *at(a, i, k) * *at(b, k, j);
        }
    return 0;
}
#else
int dnnl_memory_desc_init_by_strides(desc *made, int dimensions, const int64_t *shape, int type,
                                     const int64_t *strides) {
    describe(made, shape, strides);
    return dimensions == 2 && type == 3 ? 0 : 2;
}
int dnnl_reorder_primitive_desc_create(void **plan, desc *a, void *from, desc *b, void *into,
                                       void *attributes) {
    (void)a; (void)b;
    *plan = (void *)3;
    return attributes || from != into ? 2 : 0;
}
int dnnl_primitive_execute(void *primitive, void *stream, int count, const operand *all) {
    (void)primitive; (void)stream;
    memory *a = pick(1, count, all), *b = pick(17, count, all);
    for (int i = 0; i < a->layout.rows; i++)
        for (int j = 0; j < a->layout.columns; j++) *at(b, i, j) = *at(a, i, j);
    return 0;
}
#endif
