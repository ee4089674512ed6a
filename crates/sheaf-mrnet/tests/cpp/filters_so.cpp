// Filters of a user: a sum, one that gives a packet for every second wave, one that gives two,
// one that answers downwards, one that fails, one with parameters, and one that says where it is.
#include "mrnet/MRNet.h"

#include <stdexcept>
#include <string>

using namespace MRN;

extern "C" {

const char *add_format_string = "%d";
void add(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &, void **,
         PacketPtr &, const TopologyLocalInfo &)
{
    int sum = 0;
    for (size_t at = 0; at < in.size(); at++)
        sum += (*in[at])[0]->get_int32_t();
    PacketPtr made(new Packet(in[0]->get_StreamId(), in[0]->get_Tag(), "%d", sum));
    out.push_back(made);
}

const char *every_second_format_string = "%d";
void every_second(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &back,
                  void **state, PacketPtr &params, const TopologyLocalInfo &place)
{
    size_t *count = static_cast<size_t *>(*state);
    if (!count)
        *state = count = new size_t(0);
    if (place.get_Rank() != 0 || ++*count % 2 == 0)
        add(in, out, back, state, params, place);
}

const char *twice_format_string = "%d";
void twice(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &back,
           void **state, PacketPtr &params, const TopologyLocalInfo &place)
{
    add(in, out, back, state, params, place);
    add(in, out, back, state, params, place);
}

const char *answer_format_string = "";
void answer(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &back, void **,
            PacketPtr &, const TopologyLocalInfo &place)
{
    out.push_back(in[0]);
    if (place.get_Rank() == 0)
        back.push_back(PacketPtr(new Packet(in[0]->get_StreamId(), FirstApplicationTag + 50, "%s", "well done")));
}

const char *fails_format_string = "%d";
void fails(std::vector<PacketPtr> &, std::vector<PacketPtr> &, std::vector<PacketPtr> &, void **, PacketPtr &,
           const TopologyLocalInfo &)
{
    throw std::runtime_error("this filter never works");
}

const char *scaled_format_string = "%d";
void scaled(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &back,
            void **state, PacketPtr &params, const TopologyLocalInfo &place)
{
    int factor = 1;
    if (params != Packet::NullPacket)
        params->unpack("%d", &factor);
    add(in, out, back, state, params, place);
    if (place.get_Rank() == 0)
        (*out[0])[0]->set_int32_t(factor * (*out[0])[0]->get_int32_t());
}

// On the way down: says which nodes a packet has passed, and how many there have seen.
const char *stamp_format_string = "%s";
void stamp(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &, void **state,
           PacketPtr &params, const TopologyLocalInfo &place)
{
    int *seen = static_cast<int *>(*state);
    if (!seen)
        *state = seen = new int(0);
    const char *mark = "#";
    if (params != Packet::NullPacket)
        mark = (*params)[0]->get_string();
    for (size_t at = 0; at < in.size(); at++) {
        const std::string text = (*in[at])[0]->get_string();
        // What begins with a minus ends here.
        ++*seen;
        if (text[0] == '-')
            continue;
        const std::string made = text + "/" + std::to_string(place.get_Rank()) + mark + std::to_string(*seen);
        out.push_back(PacketPtr(new Packet(in[at]->get_StreamId(), in[at]->get_Tag(), "%s", made.c_str())));
    }
}

// Adds up what it has ever seen; the state of a node that finds another parent counts there too.
const char *total_format_string = "%d";
void total(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &, void **state,
           PacketPtr &, const TopologyLocalInfo &place)
{
    int *sum = static_cast<int *>(*state), wave = 0;
    if (!sum)
        *state = sum = new int(0);
    for (size_t at = 0; at < in.size(); at++)
        wave += (*in[at])[0]->get_int32_t();
    *sum += wave;
    out.push_back(PacketPtr(
        new Packet(in[0]->get_StreamId(), in[0]->get_Tag(), "%d", place.get_Rank() == 0 ? *sum : wave)));
}
PacketPtr total_get_state(void **state, int stream)
{
    return PacketPtr(new Packet(stream, FirstApplicationTag, "%d", *state ? *static_cast<int *>(*state) : 0));
}

const char *where_format_string = "%s";
void where(std::vector<PacketPtr> &in, std::vector<PacketPtr> &out, std::vector<PacketPtr> &, void **,
           PacketPtr &, const TopologyLocalInfo &place)
{
    std::string all = "(" + std::to_string(place.get_Rank()) + "/" + std::to_string(place.get_NumChildren());
    for (size_t at = 0; at < in.size(); at++)
        all += std::string(" ") + (*in[at])[0]->get_string();
    out.push_back(PacketPtr(new Packet(in[0]->get_StreamId(), in[0]->get_Tag(), "%s", (all + ")").c_str())));
}
}
