/* sheaf.h - the tree of libsheaf.so for C.
 *
 * A front end starts a tree of processes from a topology file; its leaves are programs of the
 * user's, the back ends. A packet that a front end sends on a stream reaches every member of it;
 * the packets that members send are combined by the stream's filter on the way up. Packets are
 * bytes here; sheaf_pack.h packs values into them and takes them out.
 *
 * Calls that give an int give 0 for success and -1 for failure, unless they say otherwise;
 * sheaf_error() and sheaf_error_message() say why. Any thread may call, with any handle. A
 * timeout_ms below zero waits for ever, zero does not wait. The library raises no SIGPIPE and
 * leaves the program's signals alone.
 */
#ifndef SHEAF_H
#define SHEAF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One end of a running tree. */
typedef struct sheaf_net sheaf_net;

/* Why a call failed. */
enum sheaf_error_code {
    SHEAF_OK = 0,
    SHEAF_TOPOLOGY = 1,  /* the topology does not parse or does not fit */
    SHEAF_LAUNCH = 2,    /* a process could not be started, or did not come up in time */
    SHEAF_USAGE = 3,     /* an argument makes no sense */
    SHEAF_UNKNOWN = 4,   /* no such stream, node or filter */
    SHEAF_ENDED = 5,     /* the session is over */
    SHEAF_SYSTEM = 6,    /* the operating system refused something */
    SHEAF_PACKET = 7,    /* a packet is not what its receiver expects */
    SHEAF_FILTER = 8,    /* a filter failed */
    SHEAF_TIMED_OUT = 9
};

/* In place of a rank: what a filter made of the packets of several nodes. */
#define SHEAF_NO_RANK UINT32_MAX
/* In place of a stream: any. */
#define SHEAF_ANY_STREAM UINT32_MAX

/* The failure of the last call that failed on this thread; the text lives until the next one. */
int sheaf_error(void);
const char *sheaf_error_message(void);
const char *sheaf_version(void);

/* How to start a session. */
struct sheaf_create {
    const char *topology;      /* the text of a topology file: "host:0 => host:1 host:2 ;" */
    const char *back_end;      /* what runs at the leaves; NULL: back ends attach themselves there */
    const char *const *args;   /* its arguments without its name, ending in NULL; or NULL */
    const char *inner;         /* what runs at inner nodes: the path of sheaf-node; NULL to look for it */
    const char *remote_shell;  /* what starts nodes on other hosts; NULL: ssh */
    const char *remote_shell_args; /* its options, in one text; or NULL */
    int64_t startup_timeout_ms;
};

/* Starts a session and waits for its back ends. NULL on failure. */
sheaf_net *sheaf_net_create(const struct sheaf_create *create);
/* In a back end: joins the tree that started this process. NULL on failure. */
sheaf_net *sheaf_net_join(void);
/* The same, or joins the tree that the last five of the arguments name: host, port and rank of the
 * node above, own host, own rank. */
sheaf_net *sheaf_net_join_args(int argc, const char *const *argv);
/* Ends the session and waits for its processes (front end), or leaves it (back end). */
void sheaf_net_shut_down(const sheaf_net *net);
/* Frees the handle; no other thread may be in a call with it. */
void sheaf_net_free(sheaf_net *net);
/* Whether the session is over; waiting for that gives 0 when the time is over instead. */
int sheaf_net_is_over(const sheaf_net *net);
int sheaf_net_wait_over(const sheaf_net *net, int64_t timeout_ms);
/* Waits until what was sent has left this process. */
int sheaf_net_flush(const sheaf_net *net);

/* This node's number; the front end is 0. */
uint32_t sheaf_net_rank(const sheaf_net *net);
/* Writes the host of a node. */
int sheaf_net_host(const sheaf_net *net, uint32_t rank, char *into, size_t len);
/* Counts the changes of the tree. */
uint64_t sheaf_net_version(const sheaf_net *net);
/* The tree, a line for each node: rank, parent's rank (-1 at the root), role (0 front end, 1 inner
 * node, 2 back end), host. To be freed with sheaf_text_free(). The second one only reads the text
 * of a topology file; NULL when that has an error. */
char *sheaf_net_table(const sheaf_net *net);
char *sheaf_topology_table(const char *topology);
void sheaf_text_free(char *text);
/* The text of a topology file: a shape ("b:4^2", "b:4x4", "k:2@16", "g:2:4,4"), the front end's
 * host, hosts of back ends ("a b:2 c"; of all nodes, when inner is NULL) and of inner nodes. */
char *sheaf_topology_make(const char *shape, const char *front, const char *hosts, const char *inner);

/* How the packets of the members of a stream become waves. */
enum sheaf_sync {
    SHEAF_WAIT_FOR_ALL = 0,
    SHEAF_TIME_OUT = 1,        /* whoever has sent sync_ms after the first */
    SHEAF_DONT_WAIT = 2
};

/* What a stream is to be. */
struct sheaf_open {
    const uint32_t *members;   /* ranks of back ends */
    size_t members_len;
    const char *filter;        /* "sum", or what sheaf_filter_load() wrote, or by rank:
                                  "sum => 0; null => 3; module:HASH:best => *;" */
    const uint8_t *params;     /* what filters of shared objects are told: a packet, or nothing */
    size_t params_len;
    const char *down;          /* filters on the way down, of shared objects only; or NULL */
    const uint8_t *down_params;
    size_t down_params_len;
    uint32_t sync;             /* enum sheaf_sync */
    uint32_t sync_ms;
    int measured;              /* nodes measure what passes: see sheaf_stream_measure() */
    const uint8_t *about;      /* what the members are told of it, for sheaf_stream_about() */
    size_t about_len;
};

/* Sends a shared object (sheaf_filter.h; in front of each packet that its function takes or gives
 * stands the rank of its sender, 32 bits, little-endian) or WebAssembly module to every node and writes the
 * name by which streams call `function` of it; at most SHEAF_FILTER_NAME_MAX bytes. */
#define SHEAF_FILTER_NAME_MAX 512
int sheaf_filter_load(const sheaf_net *net, const char *path, const char *function, char *name, size_t len);

/* Front end: a number for a stream; packets can be sent on it once it is opened. Opening it again
 * gives it other options: packets sent before still arrive before those sent after. The stream whose number is a back end's rank leads to that back end and
 * is always there. */
uint32_t sheaf_stream_new(const sheaf_net *net);
int sheaf_stream_open(const sheaf_net *net, uint32_t id, const struct sheaf_open *open);
/* Gives the filters of shared objects other parameters, upwards or (with down) downwards: for
 * packets that are sent from now on, and for the answers to them at the latest. They keep their
 * state. */
int sheaf_stream_params(const sheaf_net *net, uint32_t id, int down, const uint8_t *params, size_t len);
/* Closes a stream at this end; from the front end, everywhere. */
void sheaf_stream_close(const sheaf_net *net, uint32_t id);
/* 1 while the stream is there and has members. Back end: waiting for the front end to open it gives 1 or 0. */
int sheaf_stream_is_open(const sheaf_net *net, uint32_t id);
int sheaf_stream_wait(const sheaf_net *net, uint32_t id, uint32_t timeout_ms);
/* Back end: calls visit(context, members, members_len, about, about_len) once. */
int sheaf_stream_about(const sheaf_net *net, uint32_t id,
                       void (*visit)(void *, const uint32_t *, size_t, const uint8_t *, size_t),
                       void *context);

/* Sends a packet: down to all members (or to those of the ranks given), or up. Waits while the
 * tree does not take what was sent before. */
int sheaf_stream_send(const sheaf_net *net, uint32_t id, int32_t tag, const uint8_t *data, size_t len,
                      const uint32_t *ranks, size_t ranks_len);

/* A packet that has come. */
typedef struct sheaf_message {
    uint32_t stream;
    int32_t tag;
    uint32_t source;           /* rank of its sender, or SHEAF_NO_RANK */
    const uint8_t *data;
    size_t len;
} sheaf_message;

/* The next packet of a stream, or of any: 1 with *packet set, 0 when none has come in time, -1
 * when none can come any more, or a filter has failed in the place of this one (SHEAF_FILTER): then
 * others may follow. */
int sheaf_recv(const sheaf_net *net, uint32_t id, int64_t timeout_ms, sheaf_message **packet);
void sheaf_message_free(sheaf_message *packet);
/* 1 when a packet waits. */
int sheaf_has_packet(const sheaf_net *net, uint32_t id);
/* A descriptor for poll(2) that is readable once packets have come; -1 when there is none. */
int sheaf_stream_fd(const sheaf_net *net, uint32_t id);
void sheaf_stream_fd_clear(const sheaf_net *net, uint32_t id, int close);

/* Where nodes count packets. */
enum sheaf_count {
    SHEAF_COUNT_SENT = 0,       /* by the front end down, by other nodes up */
    SHEAF_COUNT_RECEIVED = 1,   /* by a back end from the front end, by other nodes from their children */
    SHEAF_COUNT_FILTER_IN = 2,
    SHEAF_COUNT_FILTER_OUT = 3,
    SHEAF_COUNT_SYNC_IN = 4,
    SHEAF_COUNT_SYNC_OUT = 5,
    SHEAF_COUNTS = 6
};

/* What one node has measured of a stream. */
struct sheaf_measured {
    uint32_t rank;
    uint64_t packets[SHEAF_COUNTS];
    uint64_t bytes[SHEAF_COUNTS];
    double filter_s;           /* in the filter; of that, the processor's in the program and the kernel */
    double user_s;
    double system_s;
    double waited_s;           /* between the first packet's arrival and the run of the filter that took it */
    uint64_t virtual_kb;       /* of the process */
    uint64_t resident_kb;
};

/* Front end: calls visit(context, measured) for every node of a stream that is measured (of any,
 * with SHEAF_ANY_STREAM: for every node), by rank. */
int sheaf_stream_measure(const sheaf_net *net, uint32_t id, uint32_t timeout_ms,
                         void (*visit)(void *, const struct sheaf_measured *), void *context);

/* Classes of events, and what happens in each. */
enum sheaf_event_class { SHEAF_EVENT_DATA = 0, SHEAF_EVENT_TOPOLOGY = 1, SHEAF_EVENT_ERROR = 2 };
enum sheaf_event_kind {
    SHEAF_DATA_AVAILABLE = 0,
    SHEAF_BACK_END_ADDED = 0,
    SHEAF_INNER_ADDED = 1,
    SHEAF_NODE_REMOVED = 2,
    SHEAF_PARENT_CHANGED = 3,
    SHEAF_ERROR_INTERNAL = 0,
    SHEAF_ERROR_SYSTEM = 1,
    SHEAF_ERROR_USAGE = 2
};

/* One event. */
struct sheaf_event {
    uint32_t event_class;
    uint32_t kind;
    uint32_t rank;             /* the node it is about, or SHEAF_NO_RANK */
    uint32_t parent;
    uint32_t stream;           /* the stream it is about, or SHEAF_ANY_STREAM */
    const char *text;          /* lives until the next call on this thread */
};

/* Takes the oldest event (events of data are not kept): 1, or 0 when there is none. */
int sheaf_event_next(const sheaf_net *net, struct sheaf_event *event);
/* How many wait; with clear, none afterwards. */
size_t sheaf_event_count(const sheaf_net *net, int clear);
/* As sheaf_stream_fd(), of a class of events. */
int sheaf_event_fd(const sheaf_net *net, uint32_t event_class);
void sheaf_event_fd_clear(const sheaf_net *net, uint32_t event_class, int close);
/* Calls hook(context, event) for every event from now on, on a thread of the library's. */
int sheaf_event_hook(const sheaf_net *net, void (*hook)(void *, const struct sheaf_event *), void *context);

#ifdef __cplusplus
}
#endif
#endif
