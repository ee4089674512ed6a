// Performance data of one stream and of all: what nodes count is what was sent.
#include "check.h"

using namespace MRN;

/// The tree is 0 => 1 2, 1 => 3 4, 2 => 5 6.
static const int nodes = 7;

static void expect(Stream *stream, perfdata_metric_t metric, perfdata_context_t context, uint64_t front,
                   uint64_t inner, uint64_t back)
{
    rank_perfdata_map values;
    CHECK(stream->collect_PerformanceData(values, metric, context));
    CHECK(values.size() == nodes);
    for (const auto &one : values) {
        const uint64_t want = one.first == 0 ? front : one.first < 3 ? inner : back;
        CHECK(one.second.size() == 1);
        if (one.second[0].u != want)
            std::fprintf(stderr, "metric %d, context %d, rank %d: %llu, not %llu\n", metric, context, one.first,
                         static_cast<unsigned long long>(one.second[0].u), static_cast<unsigned long long>(want));
        CHECK(one.second[0].u == want);
    }
}

static void flood(Stream *stream, int count)
{
    int tag = 0;
    PacketPtr packet;
    CHECK(stream->send(TAG_FLOOD, "%d", count) == 0);
    for (int at = 0; at < count; at++)
        CHECK(stream->recv(&tag, packet) == 1 && (*packet)[0]->get_int32_t() == 4 * at);
}

static void counts(Stream *sum)
{
    const int count = 50;
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND));
    const perfdata_context_t contexts[] = { PERFDATA_CTX_RECV, PERFDATA_CTX_FILT_IN, PERFDATA_CTX_FILT_OUT,
                                            PERFDATA_CTX_SYNCFILT_IN, PERFDATA_CTX_SYNCFILT_OUT };
    for (perfdata_context_t context : contexts)
        CHECK(sum->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, context));
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_NUM_BYTES, PERFDATA_CTX_SEND));
    flood(sum, count);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND, 1, count, count);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_RECV, 2 * count, 2 * count, 1);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SYNCFILT_IN, 2 * count, 2 * count, 0);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SYNCFILT_OUT, 2 * count, 2 * count, 0);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_IN, 2 * count, 2 * count, 0);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT, count, count, 0);
    const Packet number(0u, TAG_GO, "%d", 1);
    const uint64_t each = number.get_BufferLen();
    expect(sum, PERFDATA_MET_NUM_BYTES, PERFDATA_CTX_SEND, each, each * count, each * count);

    rank_perfdata_map all;
    CHECK(sum->collect_PerformanceData(all, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND, TFILTER_SUM));
    CHECK(all.size() == 1 && all[-nodes][0].u == 1 + 6 * count);
    CHECK(sum->collect_PerformanceData(all, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND, TFILTER_MAX));
    CHECK(all[-nodes][0].u == count);
    CHECK(sum->collect_PerformanceData(all, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND, TFILTER_MIN));
    CHECK(all[-nodes][0].u == 1);

    flood(sum, 10);
    expect(sum, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND, 2, count + 10, count + 10);
    CHECK(sum->disable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND));
    CHECK(!sum->collect_PerformanceData(all, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND));
    CHECK(!sum->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_PKT_INT_DATAPAR));
    CHECK(!sum->enable_PerformanceData(PERFDATA_MET_CPU_SYS_PCT, PERFDATA_CTX_SEND));
}

static void times_and_memory(Stream *sum)
{
    rank_perfdata_map elapsed, user, physical, address;
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_ELAPSED_SEC, PERFDATA_CTX_FILT_OUT));
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_CPU_USR_PCT, PERFDATA_CTX_FILT_OUT));
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_MEM_PHYS_KB, PERFDATA_CTX_NONE));
    CHECK(sum->enable_PerformanceData(PERFDATA_MET_MEM_VIRT_KB, PERFDATA_CTX_NONE));
    CHECK(sum->collect_PerformanceData(elapsed, PERFDATA_MET_ELAPSED_SEC, PERFDATA_CTX_FILT_OUT));
    CHECK(sum->collect_PerformanceData(user, PERFDATA_MET_CPU_USR_PCT, PERFDATA_CTX_FILT_OUT));
    CHECK(sum->collect_PerformanceData(physical, PERFDATA_MET_MEM_PHYS_KB, PERFDATA_CTX_NONE));
    CHECK(sum->collect_PerformanceData(address, PERFDATA_MET_MEM_VIRT_KB, PERFDATA_CTX_NONE));
    CHECK(elapsed.size() == nodes && user.size() == nodes && physical.size() == nodes);
    for (int rank = 0; rank < nodes; rank++) {
        // Back ends have no filter.
        CHECK(rank < 3 ? elapsed[rank][0].d > 0 : elapsed[rank][0].d == 0);
        CHECK(user[rank][0].d >= 0);
        CHECK(physical[rank][0].d > 500 && physical[rank][0].d < address[rank][0].d);
    }
    sum->print_PerformanceData(PERFDATA_MET_MEM_PHYS_KB, PERFDATA_CTX_NONE);
}

int main(int argc, char **argv)
{
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    Stream *sum = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    counts(sum);
    times_and_memory(sum);

    // One that is in use already: it counts from now on, and loses nothing.
    Stream *used = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    flood(used, 20);
    CHECK(used->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT));
    flood(used, 30);
    expect(used, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT, 30, 30, 0);

    // All streams together, those that come later too.
    CHECK(net->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT));
    Stream *later = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    flood(later, 7);
    rank_perfdata_map values;
    CHECK(net->collect_PerformanceData(values, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT));
    CHECK(values.size() == nodes && values[0][0].u == 60 + 30 + 7 && values[2][0].u == 60 + 30 + 7);
    CHECK(net->disable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT));
    CHECK(!net->collect_PerformanceData(values, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_FILT_OUT));

    // Without waiting: what every back end sends is one packet at the front end.
    Stream *loose = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT);
    CHECK(loose->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_RECV));
    CHECK(loose->send(TAG_GO, "%d", 1) == 0);
    int tag = 0;
    PacketPtr packet;
    for (int at = 0; at < 4; at++)
        CHECK(loose->recv(&tag, packet) == 1);
    expect(loose, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_RECV, 4, 2, 1);
    delete net;
    return 0;
}
