// Sends many packets that nobody has asked for, and leaves at once: none is left behind.
#include "check.h"

using namespace MRN;

int main(int argc, char **argv)
{
    Network *net = Network::CreateNetworkBE(argc, argv);
    CHECK(!net->has_Error());
    int tag = 0, count = 0;
    PacketPtr packet;
    Stream *stream = nullptr;
    CHECK(net->recv(&tag, packet, &stream) == 1 && packet->unpack("%d", &count) == 0);
    for (int at = 0; at < count; at++)
        CHECK(stream->send(tag, "%d", at) == 0);
    CHECK(stream->send(TAG_END, "%d %s", count, "end") == 0);
    delete net;
    return 0;
}
