// The front end's only child is killed: what is below it comes to the front end, with the state of
// its filters.
#include "check.h"

#include <csignal>
#include <dirent.h>
#include <fstream>
#include <string>

using namespace MRN;

/// The process that this one has started.
static pid_t only_child()
{
    DIR *all = opendir("/proc");
    CHECK(all);
    pid_t child = 0;
    while (const struct dirent *entry = readdir(all)) {
        std::ifstream stat("/proc/" + std::string(entry->d_name) + "/stat");
        std::string line;
        if (!std::getline(stat, line))
            continue;
        int parent = 0;
        char state = 0;
        // The name, in parentheses, may hold anything.
        if (std::sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", &state, &parent) == 2 && parent == getpid())
            child = std::atoi(entry->d_name);
    }
    closedir(all);
    return child;
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    const int n = static_cast<int>(all->size()), waves = 5;
    Stream *total = net->new_Stream(all, net->load_FilterFunc(argv[3], "total"), SFILTER_WAITFORALL);
    int tag = 0;
    PacketPtr packet;
    for (int wave = 1; wave <= waves; wave++) {
        CHECK(total->send(TAG_GO, "%d", 1) == 0 && total->recv(&tag, packet) == 1);
        CHECK((*packet)[0]->get_int32_t() == n * wave);
    }
    const pid_t child = only_child();
    CHECK(child > 1 && kill(child, SIGKILL) == 0);
    // Each of the two nodes below it brings what it has seen; the front end has seen all of it too.
    const int whole = 2 * n * waves + n;
    CHECK(total->send(TAG_GO, "%d", 1) == 0);
    int last = 0;
    while (last < whole) {
        CHECK(total->recv(&tag, packet) == 1);
        CHECK((*packet)[0]->get_int32_t() > last);
        last = (*packet)[0]->get_int32_t();
    }
    CHECK(last == whole && !total->has_Data());
    CHECK(net->get_NetworkTopology()->num_BackEndNodes() == static_cast<unsigned>(n));
    delete net;
    return 0;
}
