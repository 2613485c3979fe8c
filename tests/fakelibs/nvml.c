// A stand-in for libnvidia-ml.so.1. See README.md for the variables that steer it.
// A GPU's handle is its index + 1; a MIG instance's is 100 * (index of its GPU + 1) + its number + 1.
#include <stdint.h>

#include "steering.h"

typedef unsigned u32;
typedef unsigned long long u64;
typedef int Result;
enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { MIG_INSTANCES = 2 };

static const u64 MEMORY = 80ULL << 30;

static u32 gpus(void) { return value("FAKE_GPUS", 1); }
static int is_mig(const void *device) { return (uintptr_t)device > 100; }
static u32 index_of(const void *device) {
    return (u32)((is_mig(device) ? (uintptr_t)device / 100 : (uintptr_t)device) - 1);
}
static u32 instance_of(const void *device) { return (u32)((uintptr_t)device % 100 - 1); }

static Result alive(const void *device) {
    if (index_of(device) >= gpus()) return INVALID;
    return index_of(device) == value("FAKE_LOST", 999) ? LOST : OK;
}

// What is wrong is wrong with one GPU, where FAKE_ONLY names one; the others have `sound`.
static u32 ill(const void *device, const char *name, u32 sound) {
    u32 only = value("FAKE_ONLY", 999);
    return only == 999 || index_of(device) == only ? value(name, sound) : sound;
}

static Result put(char *buffer, u32 size, const char *text) {
    if (strlen(text) >= size) return TOO_SMALL;
    strcpy(buffer, text);
    return OK;
}

static Result number(const void *device, u32 *out, u32 told) {
    Result result = alive(device);
    if (result == OK) *out = told;
    return result;
}

// ---- the system

Result nvmlInit_v2(void) {
    behave();
    return (Result)value("FAKE_INIT", OK);
}
Result nvmlInitWithFlags(u32 flags) { return flags ? INVALID : nvmlInit_v2(); }
Result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(Result result) { return result == LOST ? "GPU is lost" : "an error"; }
Result nvmlSystemGetDriverVersion(char *buffer, u32 size) {
    return put(buffer, size, text_of("FAKE_DRIVER", "580.65.06"));
}
Result nvmlSystemGetNVMLVersion(char *buffer, u32 size) { return put(buffer, size, "13.580.65.06"); }
Result nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = (int)value("FAKE_CUDA", 13000);
    return OK;
}
Result nvmlSystemGetProcessName(u32 pid, char *buffer, u32 size) {
    return pid == 4321 ? put(buffer, size, "/usr/bin/trainer") : NOT_FOUND;
}

// ---- one GPU

Result nvmlDeviceGetCount_v2(u32 *count) {
    *count = gpus();
    return OK;
}
Result nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) {
    if (index >= gpus()) return INVALID;
    *device = (void *)(uintptr_t)(index + 1);
    return index == value("FAKE_LOST", 999) ? LOST : OK;
}
Result nvmlDeviceGetName(void *device, char *buffer, u32 size) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", text_of("FAKE_NAME", "NVIDIA Test"), is_mig(device) ? " MIG 3g.40gb" : "");
    return alive(device) == OK ? put(buffer, size, name) : LOST;
}
Result nvmlDeviceGetUUID(void *device, char *buffer, u32 size) {
    char text[64];
    snprintf(text, sizeof text, "%s-00000000-0000-0000-0000-%012u", is_mig(device) ? "MIG" : "GPU",
             is_mig(device) ? 10 * index_of(device) + instance_of(device) : index_of(device));
    return put(buffer, size, text);
}
Result nvmlDeviceGetSerial(void *device, char *buffer, u32 size) {
    return index_of(device) ? UNSUPPORTED : put(buffer, size, "1650123456789");
}
Result nvmlDeviceGetMemoryInfo(void *device, u64 *memory) {
    if (alive(device) != OK) return LOST;
    memory[0] = is_mig(device) ? MEMORY / 2 : MEMORY;
    memory[2] = memory[0] / 8;
    memory[1] = memory[0] - memory[2];
    return OK;
}
Result nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    u32 capability = value("FAKE_CAPABILITY", 90);
    *major = (int)capability / 10;
    *minor = (int)capability % 10;
    return alive(device);
}
Result nvmlDeviceGetPciInfo_v3(void *device, void *info) {
    char *bytes = info;
    u32 bus = 0x17 + index_of(device);
    memset(info, 0, 68);
    snprintf(bytes, 16, "0000:%02X:00.0", bus);
    ((u32 *)info)[5] = bus;
    ((u32 *)info)[7] = 0x233010de;
    snprintf(bytes + 36, 32, "00000000:%02X:00.0", bus);
    return alive(device);
}
Result nvmlDeviceGetPersistenceMode(void *device, u32 *mode) {
    return number(device, mode, value("FAKE_PERSISTENCE", 1));
}
Result nvmlDeviceGetDisplayActive(void *device, u32 *active) { return number(device, active, 0); }
Result nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *reasons) {
    *reasons = ill(device, "FAKE_EVENTS", 1);
    return alive(device);
}
Result nvmlDeviceGetComputeMode(void *device, u32 *mode) {
    return number(device, mode, ill(device, "FAKE_COMPUTE_MODE", 3));
}
Result nvmlDeviceGetMaxPcieLinkGeneration(void *device, u32 *out) { return number(device, out, 5); }
Result nvmlDeviceGetCurrPcieLinkGeneration(void *device, u32 *out) { return number(device, out, 1); }
Result nvmlDeviceGetMaxPcieLinkWidth(void *device, u32 *out) { return number(device, out, 16); }
Result nvmlDeviceGetCurrPcieLinkWidth(void *device, u32 *out) { return number(device, out, 8); }
Result nvmlDeviceGetMaxClockInfo(void *device, u32 clock, u32 *out) { return number(device, out, 1000 + clock); }
Result nvmlDeviceGetClockInfo(void *device, u32 clock, u32 *out) { return number(device, out, 300 + clock); }
Result nvmlDeviceGetEnforcedPowerLimit(void *device, u32 *out) { return number(device, out, 650500); }
Result nvmlDeviceGetPowerManagementDefaultLimit(void *device, u32 *out) { return number(device, out, 700000); }
Result nvmlDeviceGetPowerManagementLimitConstraints(void *device, u32 *low, u32 *high) {
    *low = 200000;
    return number(device, high, 700000);
}
Result nvmlDeviceGetPowerUsage(void *device, u32 *out) { return number(device, out, 71250); }
Result nvmlDeviceGetUtilizationRates(void *device, void *rates) {
    u32 share = value("FAKE_UTILISATION", 101);
    if (share > 100) return UNSUPPORTED;
    ((u32 *)rates)[1] = 0;
    return number(device, rates, share);
}
Result nvmlDeviceGetTemperature(void *device, u32 sensor, u32 *out) { return number(device, out, 31 + sensor); }
Result nvmlDeviceGetCpuAffinity(void *device, u32 words, u64 *set) {
    memset(set, 0, words * sizeof *set);
    set[0] = 0xff00;
    return alive(device);
}
Result nvmlDeviceGetVirtualizationMode(void *device, u64 *mode) {
    *mode = 1;
    return alive(device);
}
Result nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, u32 *level) {
    *level = index_of(one) / 2 == index_of(other) / 2 ? 30 : 50;
    return OK;
}
Result nvmlDeviceGetNvLinkState(void *device, u32 link, u32 *active) {
    u32 up = index_of(device) == value("FAKE_LINK_DOWN", 999) ? 2 : 3;
    return link < 4 ? number(device, active, link < up) : INVALID;
}
Result nvmlDeviceGetNvLinkVersion(void *device, u32 link, u32 *version) {
    return link < 4 ? number(device, version, 4) : INVALID;
}
Result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, u32 link, void *info) {
    if (link >= 3) return INVALID;
    return nvmlDeviceGetPciInfo_v3((void *)(uintptr_t)((index_of(device) ^ 1u) + 1), info);
}

// ---- errors of memory

static u32 ecc_of(const void *device) {
    return value("FAKE_ECC", 9) == 9 ? 9 : ill(device, "FAKE_ECC", 1);
}

Result nvmlDeviceGetEccMode(void *device, u32 *now, u32 *pending) {
    u32 ecc = ecc_of(device);
    if (ecc == 9) return UNSUPPORTED;
    *pending = 1;
    return number(device, now, ecc != 0);
}
Result nvmlDeviceGetTotalEccErrors(void *device, u32 kind, u32 counter, u64 *count) {
    u32 ecc = ecc_of(device);
    if (ecc == 9) return UNSUPPORTED;
    *count = ecc == 2 ? 5 + 10 * kind + counter : 0;
    if (kind && index_of(device) == value("FAKE_UNCONTAINED", 999)) *count = 7;
    return alive(device);
}

#ifndef OLD

Result nvmlDeviceGetRemappedRows(void *device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    u32 ecc = ecc_of(device);
    if (ecc == 9) return UNSUPPORTED;
    *corrected = 0;
    *uncorrected = ecc == 2 ? 2 : 0;
    *pending = ecc == 2;
    return number(device, failed, ecc == 2);
}
// Of the fields there is one: 230, the recovery action.
typedef struct {
    u32 field, scope;
    long long timestamp, latency;
    int kind;
    Result result;
    u64 value;
} Field;
Result nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    u32 is_uncontained = index_of(device) == value("FAKE_UNCONTAINED", 999);
    for (int i = 0; i < count; i++) {
        fields[i].result = ecc_of(device) == 9 || fields[i].field != 230 ? UNSUPPORTED : OK;
        fields[i].value = is_uncontained ? 1 : ill(device, "FAKE_RECOVERY", 0);
    }
    return alive(device);
}
Result nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}
Result nvmlDeviceGetMemoryAffinity(void *device, u32 words, u64 *set, u32 scope) {
    if (scope) return INVALID;
    memset(set, 0, words * sizeof *set);
    set[0] = 2;
    return alive(device);
}
Result nvmlDeviceGetArchitecture(void *device, u32 *out) { return number(device, out, 9); }
Result nvmlDeviceGetNumGpuCores(void *device, u32 *out) { return number(device, out, 16896); }
Result nvmlDeviceGetMemoryBusWidth(void *device, u32 *out) { return number(device, out, 5120); }
Result nvmlDeviceGetNvLinkRemoteDeviceType(void *device, u32 link, u32 *kind) {
    return link < 3 ? number(device, kind, 0) : UNSUPPORTED;
}
Result nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, void *processes) {
    u32 other = value("FAKE_PROCESS", 0);
    struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } both[] = {
        {4321, 1ULL << 30, ~0u, ~0u}, {other, 2ULL << 30, ~0u, ~0u}};
    u32 room = *count;
    if (alive(device) != OK) return LOST;
    *count = index_of(device) == 0 ? 1 + (other != 0) : 0;
    if (!*count) return OK;
    if (room < *count) return TOO_SMALL;
    memcpy(processes, both, *count * sizeof *both);
    return OK;
}
Result nvmlSystemGetDriverBranch(void *info, u32 size) {
    return size < 80 ? TOO_SMALL : put((char *)info + 4, 80, "r580_00");
}

Result nvmlDeviceGetGpuFabricInfoV(void *device, void *info) {
    struct { u32 version; unsigned char cluster[16]; u32 status, clique, state, health; } *told = info;
    u32 fabric = value("FAKE_FABRIC", 0);
    return fabric ? number(device, &told->state, fabric) : UNSUPPORTED;
}

// ---- MIG

Result nvmlDeviceGetMigMode(void *device, u32 *now, u32 *pending) {
    u32 mig = value("FAKE_MIG", 9);
    if (mig == 9) return UNSUPPORTED;
    *pending = mig;
    return number(device, now, mig);
}
Result nvmlDeviceGetMaxMigDeviceCount(void *device, u32 *count) {
    return number(device, count, value("FAKE_MIG", 9) == 1 ? 7 : 0);
}
Result nvmlDeviceGetMigDeviceHandleByIndex(void *device, u32 index, void **instance) {
    if (index >= MIG_INSTANCES) return NOT_FOUND;
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
