/* A filter for Sheaf's trees: combines the packets of a wave, at every node on the way up.
 *
 * One source serves both kinds of module: a shared object (cc -shared -fPIC) and a WebAssembly
 * module (clang --target=wasm32-wasi -mexec-model=reactor). The bytes of a module travel down the
 * tree; a stream names a function of it, say `mean`:
 *
 *     #include <sheaf_filter.h>
 *     SHEAF_FILTER_MODULE
 *     SHEAF_FILTER(mean)(sheaf_call *call) { ...; return 0; }
 *
 * Beside `mean` the module may have, each with the same signature:
 *     mean_create   before the first wave; sets call->state
 *     mean_destroy  after the last one; frees call->state
 *     mean_state    outputs one packet: what another node needs to take over (see sheaf_output)
 *     mean_absorb   takes such a packet of another node's in, as call->inputs[0]
 *
 * A function returns 0, or an errno (SHEAF_EBADMSG, ...) after sheaf_fail(call, "why"). What it had sent in that call is
 * dropped then. It must not keep pointers of the call, nor let a C++ exception out.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef SHEAF_FILTER_H
#define SHEAF_FILTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; a node refuses a module of another one. */
#define SHEAF_FILTER_ABI 1

/* What functions return. These are the numbers of Linux; <errno.h> has others in WebAssembly. */
enum {
    SHEAF_EIO = 5,
    SHEAF_EAGAIN = 11,
    SHEAF_ENOMEM = 12,
    SHEAF_EINVAL = 22,
    SHEAF_ENOSYS = 38,
    SHEAF_EBADMSG = 74,
    SHEAF_EOVERFLOW = 75,
    SHEAF_EMSGSIZE = 90
};

/* What is asked of the function (call->entry). */
enum {
    SHEAF_ENTRY_WAVE = 0,
    SHEAF_ENTRY_CREATE = 1,
    SHEAF_ENTRY_DESTROY = 2,
    SHEAF_ENTRY_STATE = 3,
    SHEAF_ENTRY_ABSORB = 4
};

/* What the output of a wave is for (call->emit). */
enum { SHEAF_EMIT_PARTIAL = 0, SHEAF_EMIT_RESULT = 1 };

/* One packet. Inputs come in the order of the node's children. */
typedef struct sheaf_packet {
    const void *data; /* aligned to 8 bytes */
    size_t len;
    int32_t tag;
    uint32_t child;           /* the child it came from, counted from 0 */
    uint32_t rank;            /* that child's rank */
    uint32_t raw;             /* 1: a leaf's own data; 0: an output of this filter at a child */
    int64_t clock_offset_ns;  /* the child's clock less this node's */
    uint64_t clock_error_ns;  /* by how much that may be off; UINT64_MAX: not measured yet */
} sheaf_packet;

/* The node. Links count one each; a node with a single child is not a leaf. */
typedef struct sheaf_node {
    uint32_t rank;
    uint32_t stream;       /* the stream this instance is for */
    uint32_t depth;        /* links to the root */
    uint32_t height;       /* links to the furthest leaf below */
    uint32_t nearest_leaf; /* links to the nearest leaf below */
    uint32_t children;
    uint32_t siblings;     /* other children of the parent */
    uint32_t descendants;  /* nodes below, leaves and others */
    uint32_t leaves;       /* leaves below */
} sheaf_node;

typedef struct sheaf_call sheaf_call;

/* One call. The node fills it in; the function may change `state` only. */
struct sheaf_call {
    uint32_t abi;
    uint32_t entry;
    uint32_t emit;
    uint32_t reserved;
    const sheaf_packet *inputs;
    size_t inputs_len;
    const void *params; /* what the stream was opened with; aligned to 8 bytes */
    size_t params_len;
    const sheaf_node *node;
    void *state; /* kept from call to call, for each stream at each node */
#ifndef __wasm__
    void *host;
    int32_t (*output)(void *host, int32_t tag, const void *data, size_t len);
    int32_t (*reply)(void *host, int32_t tag, const void *data, size_t len);
    void (*fail)(void *host, const char *text, size_t len);
#endif
};

#ifdef __wasm__
#define SHEAF_IMPORT(name) __attribute__((import_module("sheaf"), import_name(name)))
SHEAF_IMPORT("output") int32_t sheaf_host_output(int32_t tag, const void *data, size_t len);
SHEAF_IMPORT("reply") int32_t sheaf_host_reply(int32_t tag, const void *data, size_t len);
SHEAF_IMPORT("fail") void sheaf_host_fail(const char *text, size_t len);
#define SHEAF_EXPORT(name) __attribute__((export_name(name)))
#else
#define SHEAF_EXPORT(name) __attribute__((visibility("default")))
#endif

/* Sends a packet on towards the root (or, at the root, to the user). Any number per wave, in order.
 * Returns 0, or an errno when the bounds of a wave are reached. */
static inline int32_t sheaf_output(sheaf_call *call, int32_t tag, const void *data, size_t len) {
#ifdef __wasm__
    (void)call;
    return sheaf_host_output(tag, data, len);
#else
    return call->output(call->host, tag, data, len);
#endif
}

/* Sends a packet down to the members below this node: at most 256 in a wave, of at most 64 KiB
 * each. They are not sent again when the tree loses a node. */
static inline int32_t sheaf_reply(sheaf_call *call, int32_t tag, const void *data, size_t len) {
#ifdef __wasm__
    (void)call;
    return sheaf_host_reply(tag, data, len);
#else
    return call->reply(call->host, tag, data, len);
#endif
}

/* Says why the function is about to return an errno: one sentence, UTF-8. */
static inline void sheaf_fail(sheaf_call *call, const char *text) {
    size_t len = 0;
    while (text[len]) len++;
#ifdef __wasm__
    (void)call;
    sheaf_host_fail(text, len);
#else
    call->fail(call->host, text, len);
#endif
}

#ifdef __cplusplus
#define SHEAF_LINKAGE extern "C"
#else
#define SHEAF_LINKAGE
#endif

/* Begins the definition of a function that streams can name (and of its companions). */
#define SHEAF_FILTER(name) SHEAF_LINKAGE SHEAF_EXPORT(#name) int32_t name

/* Once in every module. */
#ifdef __wasm__
#define SHEAF_FILTER_MODULE                                                                       \
    SHEAF_LINKAGE void *malloc(size_t);                                                           \
    SHEAF_LINKAGE void free(void *);                                                              \
    SHEAF_LINKAGE SHEAF_EXPORT("sheaf_filter_abi") uint32_t sheaf_filter_abi(void) {              \
        return SHEAF_FILTER_ABI;                                                                  \
    }                                                                                             \
    SHEAF_LINKAGE SHEAF_EXPORT("sheaf_alloc") void *sheaf_alloc(size_t len) { return malloc(len); } \
    SHEAF_LINKAGE SHEAF_EXPORT("sheaf_free") void sheaf_free(void *at) { free(at); }
#else
#define SHEAF_FILTER_MODULE                                                                       \
    SHEAF_LINKAGE SHEAF_EXPORT("sheaf_filter_abi") uint32_t sheaf_filter_abi(void) {              \
        return SHEAF_FILTER_ABI;                                                                  \
    }
#endif

/* For layers that give filters another signature (shared objects only). A module that has no
 * sheaf_filter_abi but exports this function is called through it: `symbol` is the function that
 * the stream names (for SHEAF_ENTRY_STATE the one called NAME_get_state, without which that entry
 * is never asked for), `format` what the string variable NAME_format_string points to, or NULL.
 * It is asked for SHEAF_ENTRY_WAVE, _STATE, _ABSORB and, in the end, _DESTROY. */
typedef int32_t (*sheaf_trampoline)(sheaf_call *call, void *symbol, const char *format);
#define SHEAF_TRAMPOLINE_NAME "sheaf_mrnet_trampoline"

#ifdef __cplusplus
}
#endif
#endif
