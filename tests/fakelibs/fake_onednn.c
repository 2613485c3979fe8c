// A oneDNN that only has a verbose level. Compiled with
//   -DMAJOR=3 -DMINOR=12  the version that dnnl_version tells; without MAJOR there is no such function
//   -DOLD_NAME            the function has its name of oneDNN 0 and 1, mkldnn_set_verbose
//   -DTORCH               the function is the one that libtorch_cpu.so has, which returns 1 for success
//   -DREFUSES             it takes no level at all, as in a torch without oneDNN
// fake_level() tells the level, fake_sets() how often it was set.
static int level, sets;

static int set(int wanted) {
    sets++;
#ifdef REFUSES
    return wanted < 0 || wanted >= 0;
#else
    if (wanted < 0 || wanted > 2) return 1;
    level = wanted;
    return 0;
#endif
}

#if defined TORCH
int torch_set(int wanted) __asm__("_ZN5torch7verbose19_mkldnn_set_verboseEi");
int torch_set(int wanted) { return !set(wanted); }
#elif defined OLD_NAME
int mkldnn_set_verbose(int wanted) { return set(wanted); }
#else
int dnnl_set_verbose(int wanted) { return set(wanted); }
#endif

#ifdef MAJOR
const int *dnnl_version(void) {
    static const int version[] = {MAJOR, MINOR, 0};
    return version;
}
#endif

int fake_level(void) { return level; }
int fake_sets(void) { return sets; }
void fake_set(int wanted) { level = wanted; }
