// A runtime of OpenMP: GNU's, whose second thread has the number SECOND, or with LLVM defined LLVM's or
// Intel's, which prints BANNER.
#include <stdio.h>
#include <stdlib.h>
#ifdef LLVM
int omp_get_max_threads(void) { if (getenv("KMP_VERSION")) fputs(BANNER, stderr); return 8; }
#else
int omp_get_max_threads(void) { return 8; }
#endif
int omp_get_num_procs(void) { return 4; }
static __thread int number;
int omp_get_thread_num(void) { return number; }
int omp_get_num_threads(void) { return 2; }

#ifdef LLVM
int __kmpc_global_thread_num(void *place) { return place != 0; }
void __kmpc_push_num_threads(void *place, int thread, int count) {
    (void)place; (void)thread; (void)count;
}
void __kmpc_fork_call(void *place, int count, void (*run)(int *, int *)) {
    (void)place; (void)count;
    for (number = 0; number < 2; number++) run(&number, &number);
}
#else
#include <pthread.h>
static void (*region)(void *);
static void *other(void *nothing) { number = SECOND; region(nothing); return 0; }
void GOMP_barrier(void) {}
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags) {
    pthread_t thread;
    (void)threads; (void)flags;
    region = run;
    pthread_create(&thread, 0, other, data);
    run(data);
    pthread_join(thread, 0);
}
void omp_display_env(int all) {
    (void)all;
    fprintf(stderr, "OPENMP DISPLAY ENVIRONMENT BEGIN\n  _OPENMP = '201511'\n");
}
#endif
