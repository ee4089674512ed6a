// Takes all that back ends had sent when they left; then one packet that nobody has asked for, and a
// descriptor that tells of it.
#include "check.h"

#include <poll.h>

using namespace MRN;

int main(int argc, char **argv)
{
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    const int leaves = static_cast<int>(all->size()), count = 20000;
    Stream *each = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT);
    const int fd = each->get_DataNotificationFd();
    CHECK(fd >= 0 && each->send(TAG_GO, "%d", count) == 0);
    std::map<Rank, int> next;
    for (int at = 0; at < leaves * (count + 1); at++) {
        struct pollfd one = { fd, POLLIN, 0 };
        int tag = 0;
        PacketPtr packet;
        int got = 0;
        // What has come is told, also to one who never waits in recv().
        while ((got = each->recv(&tag, packet, false)) == 0) {
            each->clear_DataNotificationFd();
            if ((got = each->recv(&tag, packet, false)) != 0)
                break;
            CHECK(poll(&one, 1, 60000) == 1);
        }
        CHECK(got == 1);
        int &mine = next[packet->get_SourceRank()];
        CHECK(packet->get_NumDataElements() == (tag == TAG_END ? 2u : 1u));
        CHECK((*packet)[0]->get_int32_t() == mine);
        CHECK((tag == TAG_END) == (mine == count));
        mine++;
    }
    CHECK(next.size() == static_cast<size_t>(leaves));
    delete net;
    return 0;
}
