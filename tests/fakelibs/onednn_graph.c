// A oneDNN that has graphs: attention of floats alone, computed slowly as it says itself. Compiled with
//   -DMAJOR=3 -DMINOR=12   the version that dnnl_version tells
//   -DRUNTIME=4            the CPU runtime that it tells; 2, OpenMP, without it
//   -DNO_GRAPH             no function of graphs, as before 3.0
// FAKE_PARTITIONS: into how many it cuts any graph. FAKE_BEHAVIOUR: what executing does: hang, abort, fail.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef RUNTIME
#define RUNTIME 2
#endif

enum { ADD = 2, MATMUL = 39, MULTIPLY = 46, SOFTMAX = 64, MODE = 0x84, TRANSPOSE_B = 0x66, F32 = 3 };
typedef struct {
    size_t id;
    int ndims;
    int64_t dims[12];
    int data_type, property, layout_type;
    int64_t strides[12];
} logical;
typedef struct { logical in[2], out; int kind, inputs, transposed, zero; } op;
typedef struct { op *ops[8]; int count; } graph;
typedef struct { logical about; void *at; } tensor;

typedef struct { int major, minor, patch; const char *hash; unsigned cpu, gpu; } version;
const version *dnnl_version(void) {
    static const version told = {MAJOR, MINOR, 0, "0123456789abcdef", RUNTIME, 0};
    return &told;
}

#ifndef NO_GRAPH
static int level;
int dnnl_set_verbose(int wanted) { level = wanted; return 0; }
static int made(void **into, size_t size) { *into = calloc(1, size); return 0; }
int dnnl_engine_create(void **into, int kind, size_t index) { (void)kind; (void)index; return made(into, 1); }
int dnnl_stream_create(void **into, void *engine, unsigned flags) { (void)engine; (void)flags; return made(into, 1); }
int dnnl_stream_wait(void *stream) { (void)stream; return 0; }
int dnnl_graph_graph_create(void **into, int kind) { (void)kind; return made(into, sizeof(graph)); }
int dnnl_graph_op_create(void **into, size_t id, int kind, const char *name) {
    (void)id; (void)name;
    made(into, sizeof(op));
    ((op *)*into)->kind = kind;
    return 0;
}
int dnnl_graph_op_add_input(op *o, const logical *t) { o->in[o->inputs++] = *t; return 0; }
int dnnl_graph_op_add_output(op *o, const logical *t) { o->out = *t; return 0; }
int dnnl_graph_op_set_attr_s64(op *o, int name, const int64_t *value, size_t n) { (void)o; (void)name; (void)n; return *value == -1 ? 0 : 2; }
int dnnl_graph_op_set_attr_bool(op *o, int name, const uint8_t *value, size_t n) {
    (void)n;
    if (name == TRANSPOSE_B) o->transposed = *value;
    return 0;
}
int dnnl_graph_op_set_attr_str(op *o, int name, const char *value, size_t n) {
    if (name == MODE && n == 11 && !memcmp(value, "inf_as_zero", n)) o->zero = 1;
    return 0;
}
int dnnl_graph_add_op(graph *g, op *o) {
    if (o->zero && MAJOR * 100 + MINOR < 308) return 8;
    g->ops[g->count++] = o;
    return 0;
}
int dnnl_graph_graph_finalize(graph *g) { (void)g; return 0; }
int dnnl_graph_graph_filter(graph *g, int policy) { (void)g; return policy == 1 ? 0 : 2; }
static size_t partitions(void) { const char *said = getenv("FAKE_PARTITIONS"); return said ? (size_t)atoi(said) : 1; }
int dnnl_graph_graph_get_partition_num(graph *g, size_t *n) { (void)g; *n = partitions(); return 0; }
int dnnl_graph_graph_get_partitions(graph *g, size_t n, void **into) {
    for (size_t i = 0; i < n; i++) into[i] = g;
    return 0;
}
int dnnl_graph_partition_is_supported(graph *g, uint8_t *said) { (void)g; *said = 1; return 0; }
// The last operation's tensors first: whoever takes the order for granted is wrong.
static size_t ports(graph *g, logical *into) {
    size_t n = 0;
    for (int i = g->count - 1; i >= 0; i--)
        for (int j = 0; j < g->ops[i]->inputs; j++)
            if (g->ops[i]->in[j].layout_type == 2) into[n++] = g->ops[i]->in[j];
    return n;
}
int dnnl_graph_partition_get_input_ports_num(graph *g, size_t *n) { logical all[8]; *n = ports(g, all); return 0; }
int dnnl_graph_partition_get_input_ports(graph *g, size_t n, logical *into) { (void)n; ports(g, into); return 0; }
int dnnl_graph_compiled_partition_create(void **into, graph *g) { *into = g; return 0; }
int dnnl_graph_partition_compile(graph *g, graph *compiled, size_t n, const logical **in, size_t m, const logical **out, void *engine) {
    (void)compiled; (void)in; (void)m; (void)out; (void)engine;
    logical all[8];
    if (n != ports(g, all)) return 2;
    if (level == 2)
        printf("onednn_verbose,v1,graph,compile:cache_miss,cpu,100002,sdp,qk;pv,,fpm:strict,fake_kernel_t,dnnl_backend,1.5\n");
    return 0;
}
int dnnl_graph_tensor_create(void **into, const logical *about, void *engine, void *at) {
    (void)engine;
    made(into, sizeof(tensor));
    *(tensor *)*into = (tensor){*about, at};
    return 0;
}
int dnnl_graph_tensor_set_data_handle(tensor *t, void *at) { t->at = at; return 0; }
static int gone(void *what) { free(what); return 0; }
int dnnl_graph_graph_destroy(void *g) { return gone(g); }
int dnnl_graph_op_destroy(void *o) { return gone(o); }
int dnnl_graph_tensor_destroy(void *t) { return gone(t); }
int dnnl_graph_partition_destroy(void *p) { (void)p; return 0; }
int dnnl_graph_compiled_partition_destroy(void *p) { (void)p; return 0; }

// The address of a row in the last two dimensions, by the number of its matrix; a size of 1 is for all.
static float *element(const tensor *t, const int64_t *lead, int64_t row, int64_t column) {
    int n = t->about.ndims;
    int64_t at = 0;
    for (int i = 0; i < n - 2; i++) at += t->about.dims[i] == 1 ? 0 : lead[i] * t->about.strides[i];
    at += (t->about.dims[n - 2] == 1 ? 0 : row) * t->about.strides[n - 2];
    at += (t->about.dims[n - 1] == 1 ? 0 : column) * t->about.strides[n - 1];
    return (float *)t->at + at;
}
static const tensor *given(size_t id, size_t n, tensor **in) {
    for (size_t i = 0; i < n; i++)
        if (in[i]->about.id == id) return in[i];
    return NULL;
}
int dnnl_graph_compiled_partition_execute(graph *g, void *stream, size_t n, tensor **in, size_t m, tensor **out) {
    (void)stream; (void)m;
    const char *said = getenv("FAKE_BEHAVIOUR");
    if (said && !strcmp(said, "hang")) for (;;) sleep(1);
    if (said && !strcmp(said, "abort")) abort();
    if (said && !strcmp(said, "fail")) return 5;
    const tensor *q = NULL, *k = NULL, *v = NULL, *scale = NULL, *mask = NULL;
    int zero = 0;
    for (int i = 0; i < g->count; i++) {
        op *o = g->ops[i];
        if (o->kind == MATMUL && o->transposed) q = given(o->in[0].id, n, in), k = given(o->in[1].id, n, in);
        else if (o->kind == MATMUL) v = given(o->in[1].id, n, in);
        else if (o->kind == MULTIPLY) scale = given(o->in[1].id, n, in);
        else if (o->kind == ADD) mask = given(o->in[1].id, n, in);
        else if (o->kind == SOFTMAX) zero = o->zero;
    }
    if (!q || !k || !v || !scale || q->about.data_type != F32) return 3;
    int nd = q->about.ndims;
    const int64_t *dims = q->about.dims;
    int64_t rows = dims[nd - 2], width = dims[nd - 1], columns = k->about.dims[nd - 2], matrices = 1;
    for (int i = 0; i < nd - 2; i++) matrices *= dims[i];
    double *weights = malloc(sizeof(double) * (size_t)columns);
    for (int64_t matrix = 0; matrix < matrices; matrix++) {
        int64_t lead[12], rest = matrix;
        for (int i = nd - 3; i >= 0; i--) lead[i] = rest % dims[i], rest /= dims[i];
        for (int64_t row = 0; row < rows; row++) {
            double largest = -INFINITY, sum = 0;
            for (int64_t column = 0; column < columns; column++) {
                double score = 0;
                for (int64_t i = 0; i < width; i++) score += (double)*element(q, lead, row, i) * *element(k, lead, column, i);
                score *= *(float *)scale->at;
                if (mask) score += *element(mask, lead, row, column);
                weights[column] = score;
                if (score > largest) largest = score;
            }
            for (int64_t column = 0; column < columns; column++)
                sum += weights[column] = zero && largest == -INFINITY ? 0 : exp(weights[column] - largest);
            for (int64_t i = 0; i < v->about.dims[nd - 1]; i++) {
                double found = 0;
                for (int64_t column = 0; column < columns; column++) found += weights[column] * *element(v, lead, column, i);
                *element(out[0], lead, row, i) = (float)(zero && sum == 0 ? 0 : found / sum);
            }
        }
    }
    free(weights);
    return 0;
}
#endif
