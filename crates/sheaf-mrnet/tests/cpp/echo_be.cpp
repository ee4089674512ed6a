// Sends back what comes, with some exceptions by tag.
#include "check.h"

using namespace MRN;

int main(int argc, char **argv)
{
    Network *net = Network::CreateNetworkBE(argc, argv);
    CHECK(!net->has_Error());
    const Rank rank = net->get_LocalRank();
    int tag = 0;
    PacketPtr packet;
    Stream *stream = nullptr;
    while (net->recv(&tag, packet, &stream) == 1 && tag != TAG_END) {
        int count = 0;
        switch (tag) {
        case TAG_CLASSES: {
            const uint32_t value = rank % 2, one = 1, member = rank;
            CHECK(stream->send(tag, "%aud %aud %aud", &value, 1, &one, 1, &member, 1) == 0);
            break;
        }
        case TAG_SOME:
            // Back ends of even rank only.
            if (rank % 2 == 0)
                CHECK(stream->send(tag, "%d", 1) == 0);
            break;
        case TAG_FLOOD:
            CHECK(packet->unpack("%d", &count) == 0);
            for (int at = 0; at < count; at++)
                CHECK(stream->send(tag, "%d", at) == 0);
            break;
        case TAG_OWN:
            // On the stream that leads to this back end alone.
            CHECK(net->get_Stream(rank) && net->get_Stream(rank)->send(tag, "%ud", rank) == 0);
            break;
        case TAG_CLOSE:
            delete stream;
            break;
        case TAG_LEAVE:
            std::_Exit(3);
        default:
            CHECK(stream->send(packet) == 0);
        }
    }
    delete net;
    return 0;
}
