#include "check.h"

int main(int argc, char **argv)
{
    MRN::Network *net = MRN::Network::CreateNetworkBE(argc, argv);
    if (net->has_Error()) {
        net->perror("back end");
        return 1;
    }
    CHECK(net->is_LocalNodeBackEnd() && !net->is_LocalNodeFrontEnd());
    // As MRNet's back ends are told: host, port and rank of the parent, own host, own rank.
    CHECK(argc > 5);
    const MRN::NetworkTopology::Node *own = net->get_NetworkTopology()->find_Node(net->get_LocalRank());
    CHECK(own->get_HostName() == argv[argc - 2] && own->get_Rank() == MRN::Rank(std::atoi(argv[argc - 1])));
    CHECK(own->get_Parent() == MRN::Rank(std::atoi(argv[argc - 3])));
    CHECK(net->get_NetworkTopology()->find_Node(own->get_Parent())->get_HostName() == argv[argc - 5]);
    CHECK(std::atoi(argv[argc - 4]) >= 0 && std::atoi(argv[argc - 4]) < 65536);
    int tag = 0;
    do {
        MRN::PacketPtr packet;
        MRN::Stream *stream = nullptr;
        if (net->recv(&tag, packet, &stream) != 1)
            break;
        if (tag == TAG_GO) {
            int value = 0, waves = 0;
            CHECK(packet->unpack("%d %d", &value, &waves) == 0);
            for (int wave = 0; wave < waves; wave++)
                CHECK(stream->send(tag, "%d", value * wave) == 0);
            CHECK(stream->flush() == 0);
        }
    } while (tag != TAG_END);
    net->waitfor_ShutDown();
    delete net;
    return 0;
}
