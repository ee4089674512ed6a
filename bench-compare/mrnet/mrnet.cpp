// An integer sum through MRNet's interface, front end and back end in one program.
//
//   mrnet rtt|waves TOPOLOGY COUNT     the front end; prints one line of JSON
//   mrnet                              a back end, started by the tree
#include "mrnet/MRNet.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace MRN;

enum { TAG_ONE = FirstApplicationTag, TAG_MANY };
static const int RUNS = 5, WARM_UP = 50;

static double now_s()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static int back_end(int argc, char **argv)
{
    Network *net = Network::CreateNetworkBE(argc, argv);
    int tag = 0, count = 0;
    PacketPtr packet;
    Stream *stream = nullptr;
    while (net->recv(&tag, packet, &stream) == 1) {
        packet->unpack("%d", &count);
        for (int at = tag == TAG_ONE ? count - 1 : 0; at < count; at++)
            if (stream->send(tag, "%d", 1))
                return 1;
    }
    delete net;
    return 0;
}

static void expect_sum(Stream *stream, int want)
{
    int tag = 0, sum = 0;
    PacketPtr packet;
    if (stream->recv(&tag, packet) != 1 || packet->unpack("%d", &sum) || sum != want) {
        std::fprintf(stderr, "a sum of %d, not %d\n", sum, want);
        std::_Exit(1);
    }
}

static double quantile(std::vector<double> &values, double part)
{
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

int main(int argc, char **argv)
{
    if (argc < 4 || (std::strcmp(argv[1], "rtt") && std::strcmp(argv[1], "waves")))
        return back_end(argc, argv);
    Network *net = Network::CreateNetworkFE(argv[2], argv[0], nullptr);
    if (net->has_Error()) {
        net->perror("mrnet");
        return 1;
    }
    Communicator *all = net->get_BroadcastCommunicator();
    const int leaves = static_cast<int>(all->size()), count = std::atoi(argv[3]);
    Stream *stream = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    for (int at = 0; at < WARM_UP; at++) {
        stream->send(TAG_ONE, "%d", 1);
        expect_sum(stream, leaves);
    }
    std::vector<double> values;
    if (!std::strcmp(argv[1], "rtt")) {
        for (int at = 0; at < count; at++) {
            const double began = now_s();
            stream->send(TAG_ONE, "%d", 1);
            expect_sum(stream, leaves);
            values.push_back(1e6 * (now_s() - began));
        }
        std::printf("{\"median_us\": %.2f, \"p10_us\": %.2f, \"p90_us\": %.2f}\n", quantile(values, 0.5),
                    quantile(values, 0.1), quantile(values, 0.9));
    } else {
        for (int run = 0; run < RUNS; run++) {
            const double began = now_s();
            stream->send(TAG_MANY, "%d", count);
            for (int wave = 0; wave < count; wave++)
                expect_sum(stream, leaves);
            values.push_back(count / (now_s() - began));
        }
        std::printf("{\"median_waves_per_s\": %.1f}\n", quantile(values, 0.5));
    }
    delete net;
    return 0;
}
