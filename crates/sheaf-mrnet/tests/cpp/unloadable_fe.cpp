// A filter that inner nodes cannot load: who waits for its packets is told so.
#include "check.h"

#include <poll.h>
#include <string>

using namespace MRN;

extern "C" int only_in_the_front_end() { return 1; }

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    const int n = static_cast<int>(all->size());
    const int filter = net->load_FilterFunc(argv[3], "homesick");
    CHECK(filter != -1);
    Stream *sum = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    int tag = 0;
    PacketPtr packet;
    const int syncs[] = { SFILTER_WAITFORALL, SFILTER_DONTWAIT };
    for (int sync : syncs) {
        Stream *lost = net->new_Stream(all, filter, sync);
        CHECK(lost != nullptr);
        CHECK(lost->send(TAG_GO, "%d", 1) == 0);
        CHECK(lost->recv(&tag, packet) == -1);
        CHECK(net->has_Error() && net->get_ErrorMessage().find("a filter failed") != std::string::npos);
        delete lost;
    }
    // Each wave is told of, also to those who wait for any stream, or for the descriptor.
    Stream *lost = net->new_Stream(all, filter, SFILTER_WAITFORALL);
    struct pollfd ready = { lost->get_DataNotificationFd(), POLLIN, 0 };
    CHECK(lost->send(TAG_GO, "%d", 1) == 0 && lost->send(TAG_GO, "%d", 2) == 0);
    CHECK(poll(&ready, 1, 60000) == 1 && lost->has_Data());
    CHECK(lost->recv(&tag, packet, false) == -1);
    Stream *any = nullptr;
    CHECK(net->recv(&tag, packet, &any) == -1);
    CHECK(lost->recv(&tag, packet, false) == 0 && !lost->is_Closed());
    // Nobody else is concerned.
    CHECK(sum->send(TAG_GO, "%d", 3) == 0 && sum->recv(&tag, packet) == 1);
    CHECK((*packet)[0]->get_int32_t() == 3 * n);
    delete net;
    return 0;
}
