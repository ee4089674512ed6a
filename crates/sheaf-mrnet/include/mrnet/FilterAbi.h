// How the tree calls a filter that a user wrote in C++: by way of the trampoline of sheaf_filter.h.
// Whatever includes this brings it along; the linker keeps one of it in every shared object.
//
// Packets reach a filter and leave it with the rank of their sender (32 bits, little-endian) in
// front of their bytes.
#ifndef MRNET_FILTERABI_H
#define MRNET_FILTERABI_H

#include "mrnet/NetworkTopology.h"
#include "mrnet/Packet.h"
#include "sheaf_filter.h"

#include <cstring>
#include <exception>

namespace MRN {

/// What a filter is: it takes packets, and gives some onwards and some back. The state starts as
/// null and is the filter's own.
typedef void (*filter_func)(std::vector<PacketPtr> &, std::vector<PacketPtr> &, std::vector<PacketPtr> &,
                            void **, PacketPtr &, const TopologyLocalInfo &);
/// What gives a filter's state as a packet, for the node that takes over its children.
typedef PacketPtr (*filter_state_func)(void **, int);

namespace detail {
/// Bytes of the sender in front of a packet.
const size_t sender_bytes = 4;

/// A filter in the middle of a call.
class FilterCall {
public:
    FilterCall(sheaf_call *call, void *symbol, const char *format) : _call(call), _symbol(symbol), _format(format) {}

    /// Runs the filter; what it throws becomes the error of this call.
    int32_t run()
    {
        try {
            return _call->entry == SHEAF_ENTRY_STATE ? state() : wave();
        } catch (const std::exception &error) {
            sheaf_fail(_call, error.what());
        } catch (...) {
            sheaf_fail(_call, "the filter threw something that is no std::exception");
        }
        return SHEAF_EBADMSG;
    }

private:
    int32_t wave()
    {
        std::vector<PacketPtr> in, out, back;
        in.reserve(_call->inputs_len);
        for (size_t at = 0; at < _call->inputs_len; at++) {
            const sheaf_packet &one = _call->inputs[at];
            if (one.len < sender_bytes)
                return malformed();
            const uint8_t *data = static_cast<const uint8_t *>(one.data);
            in.push_back(std::make_shared<Packet>(_call->node->stream, one.tag, sender(data), data + sender_bytes,
                                                  one.len - sender_bytes));
            if (!fits(*in.back()))
                return SHEAF_EBADMSG;
        }
        PacketPtr params;
        if (_call->params_len)
            params = std::make_shared<Packet>(_call->node->stream, 0, UnknownRank,
                                              static_cast<const uint8_t *>(_call->params), _call->params_len);
        const sheaf_node &node = *_call->node;
        const TopologyLocalInfo place(node.rank, node.children, node.siblings, node.descendants, node.leaves,
                                      node.depth, node.height);
        reinterpret_cast<filter_func>(_symbol)(in, out, back, &_call->state, params, place);
        for (const PacketPtr &packet : out)
            give(packet, &sheaf_output);
        for (const PacketPtr &packet : back)
            give(packet, &sheaf_reply);
        return 0;
    }

    int32_t state()
    {
        const filter_state_func function = reinterpret_cast<filter_state_func>(_symbol);
        give(function(&_call->state, static_cast<int>(_call->node->stream)), &sheaf_output);
        return 0;
    }

    /// What goes beyond the bounds of a call is the tree's to report.
    void give(const PacketPtr &packet, int32_t (*send)(sheaf_call *, int32_t, const void *, size_t)) const
    {
        if (!packet)
            return;
        const sheaf_reader wire = packet->wire();
        const Rank source = packet->get_SourceRank() == UnknownRank ? _call->node->rank : packet->get_SourceRank();
        std::vector<uint8_t> bytes;
        bytes.reserve(sender_bytes + wire.left);
        for (size_t at = 0; at < sender_bytes; at++)
            bytes.push_back(static_cast<uint8_t>(source >> (8 * at)));
        bytes.insert(bytes.end(), wire.at, wire.at + wire.left);
        send(_call, packet->get_Tag(), bytes.data(), bytes.size());
    }

    static Rank sender(const uint8_t *data)
    {
        return static_cast<Rank>(data[0]) | static_cast<Rank>(data[1]) << 8 | static_cast<Rank>(data[2]) << 16
            | static_cast<Rank>(data[3]) << 24;
    }

    int32_t malformed() const
    {
        sheaf_fail(_call, "a malformed packet came to a filter");
        return SHEAF_EBADMSG;
    }

    /// Whether the packet is of the format that the filter names, if it names one.
    bool fits(const Packet &packet) const
    {
        if (!_format || !*_format || !std::strcmp(_format, packet.get_FormatString()))
            return true;
        const std::string want = spaceless(_format), have = packet.get_FormatString();
        if (want.empty() || spaceless(have.c_str()) == want)
            return true;
        sheaf_fail(_call, ("a packet of the format \"" + have + "\" came to a filter of \"" + _format + "\"").c_str());
        return false;
    }

    static std::string spaceless(const char *format)
    {
        std::string kept;
        for (; format && *format; format++)
            if (*format != ' ' && *format != '\t' && *format != '\n')
                kept += *format;
        return kept;
    }

    sheaf_call *_call;
    void *_symbol;
    const char *_format;
};
} // namespace detail

} // namespace MRN

/// Called by the tree. A filter's state is its own: in the end nothing is left to do.
extern "C" __attribute__((weak, used, visibility("default"))) int32_t
sheaf_mrnet_trampoline(sheaf_call *call, void *symbol, const char *format)
{
    if (call->entry == SHEAF_ENTRY_DESTROY)
        return 0;
    return MRN::detail::FilterCall(call, symbol, format).run();
}

#endif
