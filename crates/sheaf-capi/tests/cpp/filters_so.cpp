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
