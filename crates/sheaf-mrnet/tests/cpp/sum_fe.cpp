// Integer addition: every back end sends numbers, their sums come out.
#include "check.h"

int main(int argc, char **argv)
{
    MRN::Network *net = start(argc, argv);
    MRN::Communicator *all = net->get_BroadcastCommunicator();
    const int back_ends = static_cast<int>(all->get_EndPoints().size());
    MRN::Stream *stream = net->new_Stream(all, MRN::TFILTER_SUM, MRN::SFILTER_WAITFORALL);
    CHECK(stream);

    const int value = 7, waves = 20;
    CHECK(stream->send(TAG_GO, "%d %d", value, waves) == 0 && stream->flush() == 0);
    for (int wave = 0; wave < waves; wave++) {
        int tag = 0, sum = 0;
        MRN::PacketPtr packet;
        CHECK(stream->recv(&tag, packet) == 1);
        CHECK(tag == TAG_GO && packet->unpack("%d", &sum) == 0);
        CHECK(sum == value * wave * back_ends);
    }
    CHECK(stream->send(TAG_END, "") == 0);
    delete stream;
    delete net;
    std::printf("sums of %d back ends\n", back_ends);
    return 0;
}
