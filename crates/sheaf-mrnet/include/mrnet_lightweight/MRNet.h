/* MRNet's back end for C, over libsheaf.so.
 *
 * The functions with _r and those without are the same: any thread may call any of them.
 */
#ifndef MRNET_LIGHTWEIGHT_MRNET_H
#define MRNET_LIGHTWEIGHT_MRNET_H

#include "mrnet_lightweight/DataTypes.h"
#include "sheaf.h"
#include "sheaf_pack.h"

#include <pthread.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t Rank;
typedef uint16_t Port;

#ifndef MRNET_LIGHTWEIGHT_NAMES
#define MRNET_LIGHTWEIGHT_NAMES
static const Rank UnknownRank = (Rank)-1;
static const Port UnknownPort = (Port)-1;
static const int FirstSystemTag = 0;
static const int FirstApplicationTag = 100;

/* Types of packet elements. */
typedef enum { MRNET_DATA_TYPES } DataType;
#endif

/* A packet. The memory is the caller's: new_Packet_t(), malloc() or a variable. Before it is freed,
 * Packet_clear() gives back what it holds; receiving into it again does that too, if it was zeroed
 * or made by new_Packet_t() at first. */
typedef struct Packet_t {
    uint64_t mark;          /* says that `received` is one of ours */
    unsigned int stream_id;
    int tag;
    Rank src_rank;
    Rank inlet_rank;
    sheaf_message *received;
} Packet_t;

struct Network_t;

/* A stream that the front end has opened to this back end. */
typedef struct Stream_t {
    unsigned int id;
    struct Network_t *network;
    struct Stream_t *next;
} Stream_t;

/* The tree, seen from this back end. */
typedef struct Network_t {
    Rank local_rank;
    Port local_port;
    char local_hostname[256];
    sheaf_net *net;
    Stream_t *streams;
    pthread_mutex_t lock;
} Network_t;

#define SHEAF_PACKET_MARK 0x7368656166706b74ull

/* Joins the tree; NULL on failure. The last five arguments are parent's host, port and rank, own
 * host and rank, unless the tree has started this process. */
static inline Network_t *Network_CreateNetworkBE(int argc, char **argv)
{
    Network_t *network = (Network_t *)calloc(1, sizeof *network);
    if (!network)
        return NULL;
    network->net = sheaf_net_join_args(argc, (const char *const *)argv);
    if (!network->net) {
        fprintf(stderr, "Network_CreateNetworkBE: %s\n", sheaf_error_message());
        free(network);
        return NULL;
    }
    pthread_mutex_init(&network->lock, NULL);
    network->local_rank = sheaf_net_rank(network->net);
    network->local_port = UnknownPort;
    sheaf_net_host(network->net, network->local_rank, network->local_hostname, sizeof network->local_hostname);
    return network;
}

/* Leaves the tree and frees the network with its streams. */
static inline void delete_Network_t(Network_t *network)
{
    if (!network)
        return;
    sheaf_net_shut_down(network->net);
    while (network->streams) {
        Stream_t *next = network->streams->next;
        free(network->streams);
        network->streams = next;
    }
    sheaf_net_free(network->net);
    pthread_mutex_destroy(&network->lock);
    free(network);
}

static inline Rank Network_get_LocalRank(Network_t *network) { return network->local_rank; }
static inline Port Network_get_LocalPort(Network_t *network) { return network->local_port; }
static inline char *Network_get_LocalHostName(Network_t *network) { return network->local_hostname; }
/* Waits until the session is over. */
static inline void Network_waitfor_ShutDown(Network_t *network) { sheaf_net_wait_over(network->net, -1); }
static inline int Network_is_ShutDown(Network_t *network) { return sheaf_net_is_over(network->net); }
static inline int Network_has_Error(Network_t *network) { return network == NULL || network->net == NULL; }

/* The stream of that id, which may be this back end's rank; NULL when there is none. */
static inline Stream_t *Network_get_Stream(Network_t *network, unsigned int id)
{
    Stream_t *stream;
    pthread_mutex_lock(&network->lock);
    for (stream = network->streams; stream && stream->id != id; stream = stream->next) { }
    if (!stream && (sheaf_stream_is_open(network->net, id) || sheaf_has_packet(network->net, id))
        && (stream = (Stream_t *)calloc(1, sizeof *stream)) != NULL) {
        stream->id = id;
        stream->network = network;
        stream->next = network->streams;
        network->streams = stream;
    }
    pthread_mutex_unlock(&network->lock);
    return stream;
}

/* Gives back what the packet holds. */
static inline void Packet_clear(Packet_t *packet)
{
    if (packet->mark == SHEAF_PACKET_MARK && packet->received)
        sheaf_message_free(packet->received);
    memset(packet, 0, sizeof *packet);
}
static inline Packet_t *new_Packet_t(void) { return (Packet_t *)calloc(1, sizeof(Packet_t)); }
static inline void delete_Packet_t(Packet_t *packet)
{
    if (packet)
        Packet_clear(packet);
    free(packet);
}

static inline int sheaf_receive(Network_t *network, uint32_t id, int *tag, Packet_t *packet, int64_t timeout_ms)
{
    sheaf_message *received = NULL;
    int got = sheaf_recv(network->net, id, timeout_ms, &received);
    if (got != 1)
        return got;
    /* MRNet's tools give memory that was never written to; what it holds means nothing then. */
    Packet_clear(packet);
    packet->mark = SHEAF_PACKET_MARK;
    packet->received = received;
    packet->stream_id = received->stream;
    packet->tag = received->tag;
    packet->src_rank = packet->inlet_rank = received->source;
    if (tag)
        *tag = received->tag;
    return 1;
}

/* The next packet of any stream: 1, or -1 when none can come; without waiting also 0. */
static inline int Network_recv_internal(Network_t *network, int *tag, Packet_t *packet, Stream_t **stream, int64_t ms)
{
    int got = sheaf_receive(network, SHEAF_ANY_STREAM, tag, packet, ms);
    if (got == 1 && stream)
        *stream = Network_get_Stream(network, packet->stream_id);
    return got;
}
static inline int Network_recv(Network_t *network, int *tag, Packet_t *packet, Stream_t **stream)
{
    return Network_recv_internal(network, tag, packet, stream, -1);
}
static inline int Network_recv_nonblock(Network_t *network, int *tag, Packet_t *packet, Stream_t **stream)
{
    return Network_recv_internal(network, tag, packet, stream, 0);
}

/* The same of one stream; with `blocking` it waits. */
static inline int Stream_recv(Stream_t *stream, int *tag, Packet_t *packet, int blocking)
{
    return sheaf_receive(stream->network, stream->id, tag, packet, blocking ? -1 : 0);
}

/* Sends values up the stream. */
static inline int Stream_vsend(Stream_t *stream, int tag, const char *format, sheaf_args *args)
{
    sheaf_buf buf;
    uint8_t lent[SHEAF_LENT_BYTES];
    int done;
    sheaf_buf_lend(&buf, lent, sizeof lent);
    done = sheaf_pack_args(&buf, format, args);
    if (!done)
        done = sheaf_stream_send(stream->network->net, stream->id, tag, buf.data, buf.len, NULL, 0);
    sheaf_buf_free(&buf);
    return done;
}
static inline int Stream_send(Stream_t *stream, int tag, const char *format, ...)
{
    sheaf_args args;
    int done;
    va_start(args.list, format);
    done = Stream_vsend(stream, tag, format, &args);
    va_end(args.list);
    return done;
}
/* Sends a packet that was received. */
static inline int Stream_send_packet(Stream_t *stream, Packet_t *packet)
{
    const sheaf_message *all = packet->mark == SHEAF_PACKET_MARK ? packet->received : NULL;
    return all ? sheaf_stream_send(stream->network->net, stream->id, packet->tag, all->data, all->len, NULL, 0) : -1;
}
/* Waits until what was sent has left this process. */
static inline int Stream_flush(Stream_t *stream) { return sheaf_net_flush(stream->network->net); }
static inline unsigned int Stream_get_Id(Stream_t *stream) { return stream->id; }
static inline int Stream_is_Closed(Stream_t *stream) { return !sheaf_stream_is_open(stream->network->net, stream->id); }

static inline int Packet_get_Tag(Packet_t *packet) { return packet->tag; }
static inline unsigned int Packet_get_StreamId(Packet_t *packet) { return packet->stream_id; }
static inline Rank Packet_get_SourceRank(Packet_t *packet) { return packet->src_rank; }

/* Takes all values out. What is not a scalar was allocated with malloc() and is the caller's. */
static inline int Packet_unpack(Packet_t *packet, const char *format, ...)
{
    sheaf_args args;
    int done = -1;
    if (packet->mark != SHEAF_PACKET_MARK || !packet->received)
        return -1;
    va_start(args.list, format);
    done = sheaf_unpack_args(packet->received->data, packet->received->len, format, &args);
    va_end(args.list);
    return done;
}

/* The names of the variant for several threads. */
#define Network_recv_r Network_recv
#define Network_recv_nonblock_r Network_recv_nonblock
#define Network_get_Stream_r Network_get_Stream
#define Network_waitfor_ShutDown_r Network_waitfor_ShutDown
#define Network_is_ShutDown_r Network_is_ShutDown
#define Stream_send_r Stream_send
#define Stream_recv_r Stream_recv
#define Stream_flush_r Stream_flush
#define Packet_unpack_r Packet_unpack

#ifdef __cplusplus
}
#endif
#endif
