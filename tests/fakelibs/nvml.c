// A stand-in for libnvidia-ml.so.1. See README.md for the variables that steer it.
// A GPU's handle is its index + 1; a MIG instance's is 100 * (index of its GPU + 1) + its number + 1.
#include <stdint.h>

#include "steering.h"

typedef unsigned u32;
typedef unsigned long long u64;
typedef int Result;
enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

static u32 gpus(void) { return value("FAKE_GPUS", 1); }
static int is_mig(const void *device) { return (uintptr_t)device > 100; }
static u32 index_of(const void *device) {
    return (u32)((is_mig(device) ? (uintptr_t)device / 100 : (uintptr_t)device) - 1);
}
static u32 instance_of(const void *device) { return (u32)((uintptr_t)device % 100 - 1); }

// What is said of a GPU: a number, "-" for what it does not support, "!15" for what its calls return.
static const char *said(const void *device, const char *name, const char *otherwise) {
    return text_at(index_of(device), name, otherwise);
}
static u64 of(const void *device, const char *name, const char *otherwise) {
    return strtoull(said(device, name, otherwise), NULL, 0);
}
static Result alive(const void *device) {
    return index_of(device) >= gpus() ? INVALID : (Result)of(device, "FAKE_RETURNS", "0");
}
static Result checked(const void *device, const char *name, const char *otherwise) {
    const char *text = said(device, name, otherwise);
    Result result = alive(device);
    return result ? result : *text == '-' ? UNSUPPORTED : *text == '!' ? atoi(text + 1) : OK;
}
static Result number(const void *device, u32 *out, const char *name, const char *otherwise) {
    Result result = checked(device, name, otherwise);
    if (result == OK) *out = (u32)of(device, name, otherwise);
    return result;
}
static Result put(char *buffer, u32 size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(buffer, text);
    return OK;
}

#define NUMBER(function, name, otherwise) \
    Result nvmlDeviceGet##function(void *device, u32 *out) { return number(device, out, name, otherwise); }
#define NUMBER_OF(function, name, otherwise) \
    Result nvmlDeviceGet##function(void *device, u32 which, u32 *out) { \
        Result result = number(device, out, name, otherwise); \
        *out += which; \
        return result; \
    }

// ---- the system

Result nvmlInit_v2(void) {
    behave();
    return (Result)value("FAKE_NVML_INIT", OK);
}
Result nvmlInitWithFlags(u32 flags) { return flags ? INVALID : nvmlInit_v2(); }
Result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(Result result) { return result == LOST ? "GPU is lost" : "an error"; }
Result nvmlSystemGetDriverVersion(char *buffer, u32 size) {
    return put(buffer, size, text_of("FAKE_DRIVER", "580.65.06"));
}
Result nvmlSystemGetNVMLVersion(char *buffer, u32 size) {
    char text[96];
    snprintf(text, sizeof text, "13.%s", text_of("FAKE_DRIVER", "580.65.06"));
    return put(buffer, size, text);
}
Result nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)value("FAKE_CUDA", 13000);
    return OK;
}
Result nvmlSystemGetProcessName(u32 pid, char *buffer, u32 size) {
    const char *name = text_at(pid, "FAKE_PROGRAM", pid == 4321 ? "/usr/bin/trainer" : "");
    return *name ? put(buffer, size, name) : NOT_FOUND;
}

// ---- one GPU

Result nvmlDeviceGetCount_v2(u32 *count) {
    *count = gpus();
    return OK;
}
Result nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return alive(*device);
}
Result nvmlDeviceGetIndex(void *device, u32 *index) {
    *index = index_of(device);
    return alive(device);
}
Result nvmlDeviceGetName(void *device, char *buffer, u32 size) {
    char name[96];
    const char *part = is_mig(device) ? said(device, "FAKE_PROFILE", "3g.40gb") : "";
    snprintf(name, sizeof name, "%s%s%s", said(device, "FAKE_NAME", "NVIDIA Test"), *part ? " MIG " : "", part);
    return alive(device) == OK ? put(buffer, size, name) : LOST;
}
Result nvmlDeviceGetVbiosVersion(void *device, char *buffer, u32 size) {
    return alive(device) == OK ? put(buffer, size, "96.00.74.00.01") : LOST;
}
Result nvmlDeviceGetGspFirmwareVersion(void *device, char *buffer) {
    return alive(device) == OK ? put(buffer, 64, "580.65.06") : LOST;
}

#ifdef UNBOUND
int no_library_has_this(void);
int nobody_calls_this(void) { return no_library_has_this(); }
#endif

Result nvmlDeviceGetUUID(void *device, char *buffer, u32 size) {
    char text[64];
    snprintf(text, sizeof text, "%s-00000000-0000-0000-0000-%012u", is_mig(device) ? "MIG" : "GPU",
             is_mig(device) ? 10 * index_of(device) + instance_of(device) : index_of(device));
    return put(buffer, size, text);
}
Result nvmlDeviceGetSerial(void *device, char *buffer, u32 size) {
    const char *serial = said(device, "FAKE_SERIAL", index_of(device) ? "-" : "1650123456789");
    return *serial == '-' ? UNSUPPORTED : put(buffer, size, serial);
}
static Result memory_of(void *device, u64 *total, u64 *used) {
    *total = (is_mig(device) ? of(device, "FAKE_PART_GIB", "40") : of(device, "FAKE_GIB", "80")) << 30;
    *used = of(device, "FAKE_USED_GIB", "0") << 30;
    if (!*used) *used = *total / 8;
    return alive(device) == OK ? OK : LOST;
}
Result nvmlDeviceGetMemoryInfo(void *device, u64 *memory) {
    Result result = memory_of(device, memory, memory + 2);
    memory[1] = memory[0] - memory[2];
    return result;
}
Result nvmlDeviceGetMemoryInfo_v2(void *device, u64 *memory) {
    Result result = memory_of(device, memory + 1, memory + 4);
    memory[2] = 0;
    memory[3] = memory[1] - memory[4];
    return result;
}
Result nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    int capability = (int)of(device, "FAKE_CAPABILITY", "90");
    *major = capability / 10;
    *minor = capability % 10;
    return alive(device);
}
static u32 bus_of(const void *device) {
    return (u32)of(device, "FAKE_BUS", "0") ? (u32)of(device, "FAKE_BUS", "0") : 0x17 + index_of(device);
}
static Result address(u32 bus, u32 id, void *info) {
    char *bytes = info;
    memset(info, 0, 68);
    snprintf(bytes, 16, "0000:%02X:00.0", bus);
    ((u32 *)info)[5] = bus;
    ((u32 *)info)[7] = id;
    snprintf(bytes + 36, 32, "00000000:%02X:00.0", bus);
    return OK;
}
Result nvmlDeviceGetPciInfo_v3(void *device, void *info) {
    address(bus_of(device), (u32)of(device, "FAKE_PCI_ID", "0x2330") << 16 | 0x10de, info);
    return alive(device);
}
NUMBER(PersistenceMode, "FAKE_PERSISTENCE", "1")
NUMBER(DisplayActive, "FAKE_DISPLAY", "0")
NUMBER(ComputeMode, "FAKE_COMPUTE_MODE", "3")
NUMBER(MaxPcieLinkGeneration, "FAKE_MAX_PCIE_GENERATION", "5")
NUMBER(CurrPcieLinkGeneration, "FAKE_PCIE_GENERATION", "1")
NUMBER(MaxPcieLinkWidth, "FAKE_MAX_PCIE_WIDTH", "16")
NUMBER(CurrPcieLinkWidth, "FAKE_PCIE_WIDTH", "8")
NUMBER_OF(MaxClockInfo, "FAKE_MAX_CLOCK", "1000")
NUMBER_OF(ClockInfo, "FAKE_CLOCK", "300")
NUMBER_OF(Temperature, "FAKE_TEMPERATURE", "31")
NUMBER(EnforcedPowerLimit, "FAKE_POWER_LIMIT", "650500")
NUMBER(PowerManagementDefaultLimit, "FAKE_POWER_DEFAULT", "700000")
NUMBER(PowerUsage, "FAKE_POWER", "71250")
NUMBER(VirtualizationMode, "FAKE_VIRTUALISATION", "1")
Result nvmlDeviceGetPowerManagementLimitConstraints(void *device, u32 *low, u32 *high) {
    *low = 200000;
    return number(device, high, "FAKE_POWER_DEFAULT", "700000");
}
Result nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *reasons) {
    *reasons = of(device, "FAKE_EVENTS", "1");
    return checked(device, "FAKE_EVENTS", "1");
}
Result nvmlDeviceGetUtilizationRates(void *device, u32 *rates) {
    rates[1] = 0;
    return number(device, rates, "FAKE_UTILISATION", "-");
}
Result nvmlDeviceGetCpuAffinity(void *device, u32 words, u64 *set) {
    memset(set, 0, words * sizeof *set);
    set[0] = of(device, "FAKE_CPUS", "0xff00");
    return alive(device);
}
Result nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, u32 *level) {
    *level = index_of(one) / 2 == index_of(other) / 2 ? 30 : 50;
    return OK;
}
Result nvmlDeviceGetNvLinkState(void *device, u32 link, u32 *active) {
    Result result = checked(device, "FAKE_LINKS", "4");
    *active = link < of(device, "FAKE_LINKS_UP", "3");
    return result ? result : link < of(device, "FAKE_LINKS", "4") ? OK : INVALID;
}
Result nvmlDeviceGetNvLinkVersion(void *device, u32 link, u32 *version) {
    return link < of(device, "FAKE_LINKS", "4") ? number(device, version, "FAKE_LINK_VERSION", "4") : INVALID;
}
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, u32 link, void *info) {
    if (link >= of(device, "FAKE_LINKS_UP", "3")) return INVALID;
    if (of(device, "FAKE_SWITCHED", "0")) return address(5 + link % 4, 0x22a310de, info);
    return nvmlDeviceGetPciInfo_v3((void *)(uintptr_t)((index_of(device) ^ 1u) + 1), info);
}

// ---- errors of memory

Result nvmlDeviceGetEccMode(void *device, u32 *now, u32 *pending) {
    number(device, pending, "FAKE_ECC_PENDING", "1");
    return number(device, now, "FAKE_ECC", "-");
}
Result nvmlDeviceGetTotalEccErrors(void *device, u32 kind, u32 counter, u64 *count) {
    static const char *const names[] = {"FAKE_CORRECTED", "FAKE_CORRECTED_EVER", "FAKE_UNCORRECTED",
                                        "FAKE_UNCORRECTED_EVER"};
    *count = of(device, names[2 * (kind & 1) + (counter & 1)], "0");
    return checked(device, "FAKE_ECC", "-");
}

#ifndef OLD

Result nvmlDeviceGetRemappedRows(void *device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    *corrected = 0;
    *uncorrected = (u32)of(device, "FAKE_ROWS", "0");
    *pending = (u32)of(device, "FAKE_ROW_PENDING", "0");
    *failed = (u32)of(device, "FAKE_ROW_FAILED", "0");
    return checked(device, "FAKE_ECC", "-");
}
// Of the fields there is one: 230, the recovery action.
typedef struct {
    u32 field, scope;
    long long timestamp, latency;
    int kind;
    Result result;
    union {
        u32 number;
        u64 bytes;
    } value;
} Field;
Result nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].field == 230 ? checked(device, "FAKE_ECC", "-") : UNSUPPORTED;
        fields[i].value.number = of(device, "FAKE_RECOVERY", "0");
    }
    return alive(device);
}
Result nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}
Result nvmlDeviceGetMemoryAffinity(void *device, u32 words, u64 *set, u32 scope) {
    if (scope) return INVALID;
    memset(set, 0, words * sizeof *set);
    set[0] = of(device, "FAKE_NODES", "2");
    return alive(device);
}
NUMBER(Architecture, "FAKE_ARCHITECTURE", "9")
NUMBER(NumGpuCores, "FAKE_CORES", "16896")
NUMBER(MemoryBusWidth, "FAKE_MEMORY_BITS", "5120")
Result nvmlDeviceGetNvLinkRemoteDeviceType(void *device, u32 link, u32 *kind) {
    *kind = of(device, "FAKE_SWITCHED", "0") ? 2 : 0;
    return link < of(device, "FAKE_LINKS_UP", "3") ? alive(device) : UNSUPPORTED;
}
Result nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, void *processes) {
    u32 other = (u32)of(device, "FAKE_PROCESS", "0");
    u32 first = (u32)of(device, "FAKE_TRAINER", index_of(device) ? "0" : "4321");
    struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } both[] = {
        {first, 1ULL << 30, ~0u, ~0u}, {other, 2ULL << 30, ~0u, ~0u}};
    u32 room = *count;
    if (alive(device) != OK) return LOST;
    *count = (first != 0) + (other != 0);
    if (!*count) return OK;
    if (room < *count) return TOO_SMALL;
    memcpy(processes, both + !first, *count * sizeof *both);
    return OK;
}
Result nvmlSystemGetDriverBranch(void *info, u32 size) {
    char branch[96];
    snprintf(branch, sizeof branch, "r%.3s_00", text_of("FAKE_DRIVER", "580.65.06"));
    return size < 80 ? TOO_SMALL : put((char *)info + 4, 80, branch);
}
Result nvmlDeviceGetGpuFabricInfoV(void *device, void *info) {
    struct { u32 version; unsigned char cluster[16]; u32 status, clique, state, health; } *told = info;
    return number(device, &told->state, "FAKE_FABRIC", "-");
}
// One feature: FAKE_LICENCE is 1 with a licence, 0 without.
typedef struct {
    u32 code, state;
    char info[128], product[128];
    u32 enabled, year;
    unsigned short date[5];
    unsigned char status;
} Feature;
Result nvmlDeviceGetGridLicensableFeatures_v4(void *device, void *out) {
    struct { u32 supported, count; Feature features[3]; } *told = out;
    memset(told, 0, sizeof *told);
    told->supported = told->count = told->features[0].enabled = 1;
    put(told->features[0].product, 128, "NVIDIA Virtual Compute Server");
    return number(device, &told->features[0].state, "FAKE_LICENCE", "-");
}

// ---- MIG

Result nvmlDeviceGetMigMode(void *device, u32 *now, u32 *pending) {
    number(device, pending, "FAKE_MIG_PENDING", said(device, "FAKE_MIG", "-"));
    return number(device, now, "FAKE_MIG", "-");
}
Result nvmlDeviceGetMaxMigDeviceCount(void *device, u32 *count) {
    *count = *said(device, "FAKE_MIG", "-") == '1' ? 7 : 0;
    return alive(device);
}
Result nvmlDeviceGetMigDeviceHandleByIndex(void *device, u32 index, void **instance) {
    if (index >= of(device, "FAKE_INSTANCES", "2")) return NOT_FOUND;
    *instance = (void *)(uintptr_t)(100 * (index_of(device) + 1) + index + 1);
    return OK;
}
Result nvmlDeviceGetGpuInstanceId(void *device, u32 *id) {
    *id = instance_of(device) + 1;
    return is_mig(device) ? OK : INVALID;
}
Result nvmlDeviceGetComputeInstanceId(void *device, u32 *id) {
    *id = 0;
    return is_mig(device) ? OK : INVALID;
}
Result nvmlDeviceGetAttributes_v2(void *device, void *attributes) {
    struct { u32 processors, copy, decoders, encoders, jpeg, flow, gpu_slices, compute_slices; u64 memory; }
        told = {60, 3, 3, 0, 3, 0, 3, 3, 40 << 10};
    memcpy(attributes, &told, sizeof told);
    return is_mig(device) ? OK : INVALID;
}

#endif
