// The functions of CANN's runtime (libascendcl) that torch_npu and vllm-ascend call, on the memory of the host.
//
// A process sees EMULATED_NPUS devices (2) of EMULATED_NPU_MEMORY bytes (2 GiB). Every operation has ended when it
// returns, so streams and events are only names. Operators are not here: operators.cpp registers kernels for them.
// Functions that are linked and not defined here return 0 (build.py).
#define _GNU_SOURCE
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// Names and numbers of acl_base_rt.h.
typedef int error;
enum { OK = 0, INVALID = 100000, NO_DEVICE = 107001, NO_CONTEXT = 107002, NO_MEMORY = 207001 };

// A function that torch_npu looks up by name, and that has nothing to do here.
#define NOTHING(name) \
  error name(void) { return OK; }

static uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

// Devices and contexts. A context is the number of its device plus one.

static _Thread_local intptr_t context;

static uint32_t devices(void) {
  const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
  uint64_t all = setting("EMULATED_NPUS", 2);
  if (!visible) return all;
  uint32_t count = 0;
  for (const char *at = visible; *at; at++) {
    if (strtoull(at, NULL, 10) >= all) break;
    count++;
    at = strchr(at, ',');
    if (!at) break;
  }
  return count;
}

error aclrtGetDeviceCount(uint32_t *count) {
  *count = devices();
  return OK;
}

error aclrtSetDevice(int32_t device) {
  if (device < 0 || (uint32_t)device >= devices()) return NO_DEVICE;
  context = device + 1;
  return OK;
}

error aclrtGetDevice(int32_t *device) {
  if (!context) return NO_CONTEXT;
  *device = context - 1;
  return OK;
}

error aclrtCreateContext(void **made, int32_t device) {
  context = device + 1;
  *made = (void *)context;
  return OK;
}

error aclrtGetCurrentContext(void **found) {
  *found = (void *)context;
  return context ? OK : NO_CONTEXT;
}

error aclrtSetCurrentContext(void *wanted) {
  context = (intptr_t)wanted;
  return OK;
}

error aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  if (flags) *flags = 0;
  *active = context == device + 1;
  return OK;
}

const char *aclrtGetSocName(void) {
  const char *name = getenv("EMULATED_NPU_SOC");
  return name ? name : "Ascend910B1";
}

error aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  *can = 1;
  return OK;
}

error aclrtDeviceGetBareTgid(int32_t *pid) {
  *pid = getpid();
  return OK;
}

// The cores of an Ascend 910B1.
error aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value) {
  *value = 24;
  return OK;
}

error aclGetDeviceCapability(uint32_t device, int what, int64_t *value) {
  *value = 24;
  return OK;
}

error aclrtGetDeviceUtilizationRate(int32_t device, void *found) {
  memset(found, 0, 20);
  return OK;
}

const char *aclGetRecentErrMsg(void) { return ""; }

error aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actual) {
  if (actual) *actual = timeout;
  return OK;
}

size_t aclGetCompileoptSize(int option) { return 256; }

error aclGetCompileopt(int option, char *value, size_t size) {
  if (size) *value = 0;
  return OK;
}

error aclsysGetCANNVersion(int package, char *version) {
  memset(version, 0, 256);
  strcpy(version, CANN_VERSION);
  return OK;
}

error aclsysGetVersionStr(char *package, char *version) {
  strcpy(version, CANN_VERSION);
  return OK;
}

NOTHING(aclInit)
NOTHING(aclFinalize)
NOTHING(aclrtResetDevice)
NOTHING(aclrtDeviceEnablePeerAccess)
NOTHING(aclrtGetLastError)
NOTHING(aclrtPeekAtLastError)
NOTHING(aclrtSynchronizeDevice)
NOTHING(aclrtSynchronizeDeviceWithTimeout)
NOTHING(aclrtSetDeviceSatMode)
NOTHING(aclrtSetOpExecuteTimeOut)
NOTHING(aclrtSetOpWaitTimeout)
NOTHING(aclrtSetSysParamOpt)
NOTHING(aclrtCtxSetSysParamOpt)
NOTHING(aclSetCompileopt)

// Memory.

static atomic_long used;

static uint64_t memory(void) { return setting("EMULATED_NPU_MEMORY", 2ULL << 30); }

error aclrtMalloc(void **pointer, size_t size, int policy) {
  if (atomic_load(&used) + (long)size > (long)memory()) return NO_MEMORY;
  if (posix_memalign(pointer, 4096, size ? size : 1)) return NO_MEMORY;
  atomic_fetch_add(&used, malloc_usable_size(*pointer));
  return OK;
}

error aclrtMallocAlign32(void **pointer, size_t size, int policy) { return aclrtMalloc(pointer, size, policy); }

error aclrtFree(void *pointer) {
  if (pointer) atomic_fetch_sub(&used, malloc_usable_size(pointer));
  free(pointer);
  return OK;
}

error aclrtMallocHost(void **pointer, size_t size) {
  return posix_memalign(pointer, 4096, size ? size : 1) ? NO_MEMORY : OK;
}

error aclrtMallocHostWithCfg(void **pointer, uint64_t size, void *options) { return aclrtMallocHost(pointer, size); }

error aclrtFreeHost(void *pointer) {
  free(pointer);
  return OK;
}

error aclrtHostRegister(void *pointer, uint64_t size, int type, void **device) {
  *device = pointer;
  return OK;
}

NOTHING(aclrtHostUnregister)

error aclrtMemcpy(void *to, size_t most, const void *from, size_t count, int kind) {
  memmove(to, from, count);
  return OK;
}

error aclrtMemcpyAsync(void *to, size_t most, const void *from, size_t count, int kind, void *stream) {
  return aclrtMemcpy(to, most, from, count, kind);
}

error aclrtMemset(void *at, size_t most, int32_t value, size_t count) {
  memset(at, value, count);
  return OK;
}

error aclrtMemsetAsync(void *at, size_t most, int32_t value, size_t count, void *stream) {
  return aclrtMemset(at, most, value, count);
}

error aclrtGetMemInfo(int attribute, size_t *available, size_t *total) {
  long left = (long)memory() - atomic_load(&used);
  *total = memory();
  *available = left > 0 ? left : 0;
  return OK;
}

// Memory by pages, for vLLM's pool of sleeping weights and for expandable segments. A page is a part of a file.

struct pages {
  int file;
  size_t size;
};

error aclrtMemGetAllocationGranularity(void *property, int option, size_t *size) {
  *size = 2 << 20;
  return OK;
}

error aclrtReserveMemAddress(void **at, size_t size, size_t alignment, void *expected, uint64_t flags) {
  *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *at == MAP_FAILED ? NO_MEMORY : OK;
}

NOTHING(aclrtReleaseMemAddress)

error aclrtMallocPhysical(void **handle, size_t size, const void *property, uint64_t flags) {
  if (atomic_load(&used) + (long)size > (long)memory()) return NO_MEMORY;
  struct pages *made = malloc(sizeof *made);
  made->file = memfd_create("npu", MFD_CLOEXEC);
  made->size = size;
  if (made->file < 0 || ftruncate(made->file, size)) return NO_MEMORY;
  atomic_fetch_add(&used, size);
  *handle = made;
  return OK;
}

error aclrtFreePhysical(void *handle) {
  struct pages *found = handle;
  atomic_fetch_sub(&used, found->size);
  close(found->file);
  free(found);
  return OK;
}

error aclrtMapMem(void *at, size_t size, size_t offset, void *handle, uint64_t flags) {
  struct pages *found = handle;
  void *mapped = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->file, offset);
  return mapped == MAP_FAILED ? NO_MEMORY : OK;
}

// The size is not given: the mapping that starts here is replaced by one without access.
error aclrtUnmapMem(void *at) {
  FILE *maps = fopen("/proc/self/maps", "r");
  unsigned long from = 0, to = 0;
  char line[512];
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (void *)from == at) break;
  if (maps) fclose(maps);
  if ((void *)from != at) return INVALID;
  void *mapped = mmap(at, to - from, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return mapped == MAP_FAILED ? INVALID : OK;
}

// Streams and events.

struct event {
  struct timespec at;
};

static atomic_int streams;

error aclrtCreateStream(void **made) {
  int32_t *number = malloc(sizeof *number);
  *number = atomic_fetch_add(&streams, 1);
  *made = number;
  return OK;
}

error aclrtCreateStreamWithConfig(void **made, uint32_t priority, uint32_t flags) { return aclrtCreateStream(made); }

error aclrtDestroyStream(void *stream) {
  free(stream);
  return OK;
}

error aclrtDestroyStreamForce(void *stream) { return aclrtDestroyStream(stream); }

error aclrtStreamQuery(void *stream, int *status) {
  *status = 0;
  return OK;
}

error aclrtStreamGetId(void *stream, int32_t *number) {
  *number = stream ? *(int32_t *)stream : 0;
  return OK;
}

error aclrtGetStreamOverflowSwitch(void *stream, uint32_t *flag) {
  *flag = 0;
  return OK;
}

error aclrtCtxGetCurrentDefaultStream(void **found) {
  static void *one;
  if (!one) aclrtCreateStream(&one);
  *found = one;
  return OK;
}

error aclrtCreateEvent(void **made) {
  *made = calloc(1, sizeof(struct event));
  return OK;
}

error aclrtCreateEventWithFlag(void **made, uint32_t flag) { return aclrtCreateEvent(made); }
error aclrtCreateEventExWithFlag(void **made, uint32_t flag) { return aclrtCreateEvent(made); }

error aclrtDestroyEvent(void *event) {
  free(event);
  return OK;
}

error aclrtRecordEvent(void *event, void *stream) {
  clock_gettime(CLOCK_MONOTONIC, &((struct event *)event)->at);
  return OK;
}

error aclrtQueryEventStatus(void *event, int *status) {
  *status = 1;  // ACL_EVENT_RECORDED_STATUS_COMPLETE
  return OK;
}

error aclrtQueryEventWaitStatus(void *event, int *status) {
  *status = 0;  // ACL_EVENT_WAIT_STATUS_COMPLETE
  return OK;
}

error aclrtEventElapsedTime(float *milliseconds, void *from, void *to) {
  struct event *first = from, *last = to;
  *milliseconds = (last->at.tv_sec - first->at.tv_sec) * 1e3f + (last->at.tv_nsec - first->at.tv_nsec) / 1e6f;
  return OK;
}

error aclrtEventGetTimestamp(void *event, uint64_t *microseconds) {
  struct event *one = event;
  *microseconds = one->at.tv_sec * 1000000ULL + one->at.tv_nsec / 1000;
  return OK;
}

NOTHING(aclrtSynchronizeStream)
NOTHING(aclrtSynchronizeStreamWithTimeout)
NOTHING(aclrtSetStreamFailureMode)
NOTHING(aclrtSetStreamOverflowSwitch)
NOTHING(aclrtSetStreamAttribute)
NOTHING(aclrtResetEvent)
NOTHING(aclrtStreamWaitEvent)
NOTHING(aclrtSynchronizeEvent)
NOTHING(aclrtSubscribeReport)
NOTHING(aclrtUnSubscribeReport)

error aclrtProcessReport(int32_t timeout) {
  usleep(1000);
  return OK;
}

error aclrtLaunchCallback(void (*call)(void *), void *data, int block, void *stream) {
  call(data);
  return OK;
}

error aclrtLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
  call(data);
  return OK;
}
