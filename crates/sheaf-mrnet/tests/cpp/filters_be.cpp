#include "check.h"

using namespace MRN;

int main(int argc, char **argv)
{
    Network *net = Network::CreateNetworkBE(argc, argv);
    CHECK(!net->has_Error());
    int tag = 0;
    PacketPtr packet;
    Stream *stream = nullptr;
    bool answered = false;
    while (net->recv(&tag, packet, &stream) == 1) {
        if (tag == TAG_GO) {
            int waves = 0;
            CHECK(packet->unpack("%d", &waves) == 0);
            for (int wave = 0; wave < waves; wave++)
                CHECK(stream->send(tag, "%d", wave) == 0);
        } else if (tag == TAG_OTHER || !answered) {
            answered = tag != TAG_OTHER;
            char *text = nullptr;
            CHECK(packet->unpack("%s", &text) == 0);
            CHECK(stream->send(tag, "%s", text) == 0);
            std::free(text);
        }
    }
    delete net;
    return 0;
}
