// Streams that change while they are in use: parameters, time-outs, members.
#include "check.h"

using namespace MRN;

static void parameters(Network *net, Communicator *all, const char *so)
{
    const int n = static_cast<int>(all->size()), count = 2000;
    Stream *scaled = net->new_Stream(all, net->load_FilterFunc(so, "scaled"), SFILTER_WAITFORALL);
    int tag = 0;
    PacketPtr packet;
    for (int turn = 1; turn <= 3; turn++) {
        CHECK(scaled->send(TAG_FLOOD, "%d", count) == 0);
        CHECK(scaled->set_FilterParameters(FILTER_UPSTREAM_TRANS, "%d", 10 * turn) == 0);
    }
    // None is lost, and no answer has older parameters than those set before it was asked for.
    const int factors[] = { 1, 10, 20, 30 };
    int newest = 0;
    for (int at = 0; at < 3 * count; at++) {
        CHECK(scaled->recv(&tag, packet) == 1);
        newest = newest < at / count ? at / count : newest;
        const int sum = n * (at % count), value = (*packet)[0]->get_int32_t();
        while (value != factors[newest] * sum)
            CHECK(++newest <= 3);
    }
    CHECK(!scaled->has_Data());
    delete scaled;
}

static void time_outs(Network *net, Communicator *all)
{
    const int n = static_cast<int>(all->size()), count = 1000;
    Stream *timed = net->new_Stream(all, TFILTER_NULL, SFILTER_TIMEOUT);
    for (unsigned ms = 40; ms >= 10; ms -= 10) {
        CHECK(timed->set_FilterParameters(FILTER_UPSTREAM_SYNC, "%ud", ms) == 0);
        CHECK(timed->send(TAG_FLOOD, "%d", count) == 0);
    }
    // With time-outs a late wave may come after a later one; none is lost, and none comes twice.
    std::map<Rank, std::map<int, int> > seen;
    int tag = 0;
    PacketPtr packet;
    for (int at = 0; at < 4 * n * count; at++) {
        CHECK(timed->recv(&tag, packet) == 1);
        ++seen[packet->get_SourceRank()][(*packet)[0]->get_int32_t()];
    }
    CHECK(seen.size() == static_cast<size_t>(n));
    for (const auto &one : seen)
        for (int number = 0; number < count; number++)
            CHECK(one.second.count(number) && one.second.at(number) == 4);
    CHECK(!timed->has_Data() && !timed->is_Closed());
    delete timed;
}

static void members(Network *net, Communicator *all)
{
    const int n = static_cast<int>(all->size());
    Stream *stream = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT);
    CHECK(stream->send(TAG_GO, "%d", 1) == 0 && stream->send(TAG_CLOSE, "") == 0);
    int tag = 0, got = 0;
    PacketPtr packet;
    while (stream->recv(&tag, packet) == 1)
        got += (*packet)[0]->get_int32_t();
    CHECK(got == n && stream->is_Closed() && !net->is_ShutDown());
    delete stream;
    // The session goes on.
    Stream *sum = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    CHECK(sum->send(TAG_GO, "%d", 2) == 0 && sum->recv(&tag, packet) == 1);
    CHECK((*packet)[0]->get_int32_t() == 2 * n && !sum->is_Closed());
    // Also when they are gone altogether.
    CHECK(sum->send(TAG_LEAVE, "") == 0);
    CHECK(sum->recv(&tag, packet) == -1 && sum->is_Closed());
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    parameters(net, all, argv[3]);
    time_outs(net, all);
    members(net, all);
    delete net;
    return 0;
}
