// Many back ends in one process, a thread for each.
#include "check.h"

#include "xplat/Thread.h"

#include <csignal>

using namespace MRN;

static void *back_end(void *data)
{
    char **words = static_cast<char **>(data);
    char name[] = "back end", host[] = "localhost";
    char *args[] = { name, words[0], words[1], words[2], host, words[3], nullptr };
    Network *net = Network::CreateNetworkBE(6, args);
    if (net->has_Error())
        net->perror("back end");
    CHECK(!net->has_Error() && net->get_LocalRank() == static_cast<Rank>(std::atoi(words[3])));
    CHECK(net->get_NetworkTopology()->find_Node(net->get_LocalRank())->is_BackEnd());
    int tag = 0;
    PacketPtr packet;
    Stream *stream = nullptr;
    while (net->recv(&tag, packet, &stream) == 1 && tag != TAG_END) {
        if (tag == TAG_FLOOD) {
            // Until the session is over: nobody takes so much.
            while (stream->send(packet) == 0) {
            }
            break;
        }
        CHECK(stream->send(packet) == 0 && stream->flush() == 0);
    }
    delete net;
    return nullptr;
}

int main(int argc, char **argv)
{
    std::vector<XPlat::Thread::Id> threads;
    for (int at = 1; at + 3 < argc; at += 4) {
        XPlat::Thread::Id id;
        CHECK(XPlat::Thread::Create(back_end, argv + at, &id) == 0);
        threads.push_back(id);
    }
    for (XPlat::Thread::Id id : threads)
        CHECK(XPlat::Thread::Join(id, nullptr) == 0);
    // Signals are this program's own.
    struct sigaction terminate;
    CHECK(sigaction(SIGTERM, nullptr, &terminate) == 0 && terminate.sa_handler == SIG_DFL);
    // A place that there is not.
    char name[] = "x", host[] = "localhost", port[] = "1";
    char *args[] = { name, host, port, port, host, port, nullptr };
    Network *net = Network::CreateNetworkBE(6, args);
    CHECK(net->has_Error());
    delete net;
    return 0;
}
