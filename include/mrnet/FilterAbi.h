// How the tree calls a filter that a user wrote in C++. Whatever includes this brings the two
// functions along; the linker keeps one of each in every shared object.
#ifndef MRNET_FILTERABI_H
#define MRNET_FILTERABI_H

#include "mrnet/NetworkTopology.h"
#include "mrnet/Packet.h"

#include <exception>

extern "C" {

/// A packet on its way into a filter.
struct sheaf_mrnet_packet {
    int32_t tag;
    uint32_t source;
    const uint8_t *data;
    size_t len;
};

/// One call of a filter.
struct sheaf_mrnet_call {
    void *function;
    void **state;
    uint32_t stream;
    const sheaf_mrnet_packet *packets;
    size_t packets_len;
    const uint8_t *params;
    size_t params_len;
    uint32_t rank, children, siblings, descendants, leaf_descendants, root_distance, max_leaf_distance;
    void *context;
    void (*give)(void *context, int back, int32_t tag, uint32_t source, const uint8_t *data, size_t len);
    void (*fail)(void *context, const char *message);
};
}

namespace MRN {

/// What a filter is: it takes packets, and gives some upwards and some back down. The state starts
/// as null and is the filter's own.
typedef void (*filter_func)(std::vector<PacketPtr> &, std::vector<PacketPtr> &, std::vector<PacketPtr> &,
                            void **, PacketPtr &, const TopologyLocalInfo &);
/// What gives a filter's state as a packet, for the node that takes over its children.
typedef PacketPtr (*filter_state_func)(void **, int);

namespace detail {
inline void give(const sheaf_mrnet_call *call, const PacketPtr &packet, int back)
{
    if (!packet)
        return;
    const sheaf_reader wire = packet->wire();
    const Rank source = packet->get_SourceRank() == UnknownRank ? call->rank : packet->get_SourceRank();
    call->give(call->context, back, packet->get_Tag(), source, wire.at, wire.left);
}

template <class Act> int guarded(const sheaf_mrnet_call *call, Act act)
{
    try {
        act();
        return 0;
    } catch (const std::exception &error) {
        call->fail(call->context, error.what());
    } catch (...) {
        call->fail(call->context, "the filter threw something that is no std::exception");
    }
    return -1;
}
} // namespace detail

} // namespace MRN

extern "C" {

__attribute__((weak, used, visibility("default"))) int sheaf_mrnet_run(const sheaf_mrnet_call *call)
{
    return MRN::detail::guarded(call, [call] {
        std::vector<MRN::PacketPtr> in, out, back;
        for (size_t at = 0; at < call->packets_len; at++) {
            const sheaf_mrnet_packet &one = call->packets[at];
            in.push_back(std::make_shared<MRN::Packet>(call->stream, one.tag, one.source, one.data, one.len));
        }
        MRN::PacketPtr params;
        if (call->params_len)
            params = std::make_shared<MRN::Packet>(call->stream, 0, MRN::UnknownRank, call->params, call->params_len);
        const MRN::TopologyLocalInfo place(call->rank, call->children, call->siblings, call->descendants,
                                           call->leaf_descendants, call->root_distance, call->max_leaf_distance);
        reinterpret_cast<MRN::filter_func>(call->function)(in, out, back, call->state, params, place);
        for (const MRN::PacketPtr &packet : out)
            MRN::detail::give(call, packet, 0);
        for (const MRN::PacketPtr &packet : back)
            MRN::detail::give(call, packet, 1);
    });
}

__attribute__((weak, used, visibility("default"))) int sheaf_mrnet_state(const sheaf_mrnet_call *call)
{
    return MRN::detail::guarded(call, [call] {
        const MRN::filter_state_func state = reinterpret_cast<MRN::filter_state_func>(call->function);
        MRN::detail::give(call, state(call->state, static_cast<int>(call->stream)), 0);
    });
}
}

#endif
