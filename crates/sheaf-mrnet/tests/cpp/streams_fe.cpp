// Many streams at once, to some and to one, without waiting, with a time-out, and descriptors.
#include "check.h"

#include <poll.h>
#include <set>
#include <string>

using namespace MRN;

static bool readable(int fd, int milliseconds)
{
    struct pollfd one = { fd, POLLIN, 0 };
    return poll(&one, 1, milliseconds) == 1;
}

static void many(Network *net, Communicator *all)
{
    const int count = 40;
    const char *format = "%c %uc %hd %uhd %d %ud %ld %uld %f %lf %s";
    std::vector<Stream *> streams;
    for (int at = 0; at < count; at++) {
        streams.push_back(net->new_Stream(all, at % 2 ? TFILTER_NULL : TFILTER_MAX, SFILTER_WAITFORALL));
        CHECK(streams.back());
    }
    for (int at = 0; at < count; at += 2)
        CHECK(streams[at]->send(TAG_GO, "%d %lf", at, 0.5) == 0);
    for (int at = 1; at < count; at += 2)
        CHECK(streams[at]->send(TAG_GO, format, 'a', 'b', 1, 2, at, 4u, int64_t(5), uint64_t(6), 7.5f, 8.5, "nine") == 0);
    size_t left = count / 2 + count / 2 * all->size();
    for (; left > 0; left--) {
        int tag = 0;
        PacketPtr packet;
        Stream *from = nullptr;
        CHECK(net->recv(&tag, packet, &from) == 1 && from && tag == TAG_GO);
        const size_t index = from->get_Id() - streams[0]->get_Id();
        CHECK(index < streams.size() && streams[index] == from && net->get_Stream(from->get_Id()) == from);
        CHECK(packet->get_NumDataElements() == (index % 2 ? 11u : 2u));
        CHECK((*packet)[index % 2 ? 4 : 0]->get_int32_t() == static_cast<int>(index));
    }
    for (Stream *stream : streams)
        delete stream;
}

static void some_and_one(Network *net, Communicator *all)
{
    const std::set<CommunicationNode *> &nodes = all->get_EndPoints();
    std::set<Rank> half;
    for (CommunicationNode *node : nodes) {
        const Rank rank = node->get_Rank();
        if (half.size() < nodes.size() / 2)
            half.insert(rank);
        CHECK(net->send(rank, TAG_GO, "%ud", rank) == 0);
        int tag = 0;
        PacketPtr packet;
        Stream *own = net->get_Stream(rank);
        CHECK(own && own->get_Id() == rank && own->size() == 1);
        CHECK(own->recv(&tag, packet) == 1 && packet->get_SourceRank() == rank);
        CHECK((*packet)[0]->get_uint32_t() == rank);
    }
    // A back end may also begin.
    Stream *whole = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    CHECK(whole->send(TAG_OWN, "") == 0);
    for (CommunicationNode *node : nodes) {
        int tag = 0;
        PacketPtr packet;
        CHECK(net->get_Stream(node->get_Rank())->recv(&tag, packet) == 1 && tag == TAG_OWN);
    }
    Communicator *group = net->new_Communicator(half);
    CHECK(group && group->size() == half.size() && !net->new_Communicator(std::set<Rank>{ 100000 }));
    Stream *sums = net->new_Stream(group, TFILTER_SUM, SFILTER_WAITFORALL);
    CHECK(sums->send(TAG_GO, "%d", 3) == 0);
    int tag = 0;
    PacketPtr packet;
    CHECK(sums->recv(&tag, packet) == 1 && (*packet)[0]->get_int32_t() == 3 * static_cast<int>(half.size()));

    // To some members of a stream.
    Stream *each = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT);
    PacketPtr to_half(new Packet(each->get_Id(), TAG_GO, "%d", 1));
    const std::vector<Rank> ranks(half.begin(), half.end());
    CHECK(to_half->set_Destinations(ranks.data(), static_cast<unsigned>(ranks.size())));
    CHECK(each->send(to_half) == 0 && each->send(TAG_OTHER, "%d", 2) == 0);
    for (size_t at = 0; at < half.size() + all->size(); at++) {
        CHECK(each->recv(&tag, packet) == 1);
        CHECK(tag != TAG_GO || half.count(packet->get_SourceRank()));
    }
    CHECK(!each->has_Data());

    // Closed by the front end.
    CHECK(!each->is_Closed());
    delete each;
    CHECK(net->get_Stream(to_half->get_StreamId()) == nullptr);
}

static void waits(Network *net, Communicator *all)
{
    int tag = 0;
    PacketPtr packet;
    unsigned even = 0;
    for (const CommunicationNode *node : all->get_EndPoints())
        even += node->get_Rank() % 2 == 0;

    Stream *timed = net->new_Stream(all, TFILTER_SUM, SFILTER_TIMEOUT);
    CHECK(timed->set_FilterParameters(FILTER_UPSTREAM_SYNC, "%ud", 300u) == 0);
    CHECK(timed->send(TAG_SOME, "") == 0);
    for (unsigned sum = 0; sum < even; sum += static_cast<unsigned>((*packet)[0]->get_int32_t()))
        CHECK(timed->recv(&tag, packet) == 1 && tag == TAG_SOME);

    // One member sends far more than the others, who send nothing.
    Stream *flood = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT);
    const int count = 40000;
    PacketPtr go(new Packet(flood->get_Id(), TAG_FLOOD, "%d", count));
    const Rank one = (*all->get_EndPoints().begin())->get_Rank();
    go->set_Destinations(&one, 1);
    const int fd = flood->get_DataNotificationFd();
    CHECK(fd >= 0 && !readable(fd, 0));
    for (int turn = 0; turn < 3; turn++) {
        CHECK(flood->send(go) == 0);
        CHECK(readable(fd, 60000));
        for (int at = 0; at < count; at++) {
            CHECK(flood->recv(&tag, packet) == 1 && packet->get_SourceRank() == one);
            CHECK((*packet)[0]->get_int32_t() == at);
        }
        flood->clear_DataNotificationFd();
        CHECK(!readable(fd, 0));
    }
    flood->close_DataNotificationFd();
}

int main(int argc, char **argv)
{
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    many(net, all);
    some_and_one(net, all);
    waits(net, all);
    delete net;
    return 0;
}
