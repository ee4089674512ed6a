// A tree without back ends, to which threads of another process attach themselves.
#include "check.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>
#include <sys/wait.h>

using namespace MRN;

static std::atomic<int> joined(0), left(0);
static void on_join(Event *, void *) { ++joined; }
static void on_leave(Event *, void *) { ++left; }

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = Network::CreateNetworkFE(argv[1], nullptr, nullptr);
    if (net->has_Error())
        net->perror("front end");
    CHECK(!net->has_Error());
    CHECK(net->register_EventCallback(Event::TOPOLOGY_EVENT, TopologyEvent::TOPOL_ADD_BE, on_join, nullptr));
    CHECK(net->register_EventCallback(Event::TOPOLOGY_EVENT, TopologyEvent::TOPOL_REMOVE_NODE, on_leave, nullptr));
    NetworkTopology *tree = net->get_NetworkTopology();
    std::vector<NetworkTopology::Node *> leaves;
    tree->get_Leaves(leaves);
    CHECK(leaves.size() == 2 && tree->num_BackEndNodes() == 0);

    // Three back ends at each leaf: host, port and rank of the leaf, and their own ranks.
    std::vector<std::string> words(1, argv[2]);
    int rank = 100;
    for (int at = 0; at < 6; at++) {
        const NetworkTopology::Node *leaf = leaves[at % leaves.size()];
        CHECK(leaf->get_Port() != 0);
        words.push_back(leaf->get_HostName());
        words.push_back(std::to_string(leaf->get_Port()));
        words.push_back(std::to_string(leaf->get_Rank()));
        words.push_back(std::to_string(rank++));
    }
    const pid_t child = fork();
    if (child == 0) {
        std::vector<char *> args;
        for (std::string &word : words)
            args.push_back(&word[0]);
        args.push_back(nullptr);
        execv(argv[2], args.data());
        _exit(127);
    }
    while (joined < 6) {
        int status = 0;
        CHECK(waitpid(child, &status, WNOHANG) == 0);
        usleep(1000);
    }
    CHECK(tree->num_BackEndNodes() == 6 && tree->find_Node(100)->get_Parent() == leaves[0]->get_Rank());

    Communicator *all = net->get_BroadcastCommunicator();
    CHECK(all->size() == 6);
    int tag = 0;
    PacketPtr packet;
    Stream *sum = net->new_Stream(all, TFILTER_SUM, SFILTER_WAITFORALL);
    for (int wave = 1; wave < 50; wave++) {
        CHECK(sum->send(TAG_GO, "%d", wave) == 0 && sum->recv(&tag, packet) == 1 && tag == TAG_GO);
        CHECK((*packet)[0]->get_int32_t() == 6 * wave);
    }
    Stream *each = net->new_Stream(all, TFILTER_NULL, SFILTER_WAITFORALL);
    const std::vector<double> many(300000, 0.5);
    CHECK(each->send(TAG_GO, "%alf", many.data(), static_cast<uint32_t>(many.size())) == 0);
    std::set<Rank> from;
    for (int at = 0; at < 6; at++) {
        CHECK(each->recv(&tag, packet) == 1);
        from.insert(packet->get_SourceRank());
        uint64_t length = 0;
        const double *values = static_cast<const double *>((*packet)[0]->get_array(nullptr, &length));
        CHECK(length == many.size() && values[length - 1] == 0.5);
    }
    CHECK(from.size() == 6 && *from.begin() == 100);
    std::set<Rank> some = { 101, 104 };
    Stream *two = net->new_Stream(net->new_Communicator(some), TFILTER_MAX, SFILTER_TIMEOUT);
    CHECK(two->set_FilterParameters(FILTER_UPSTREAM_SYNC, "%ud", 2000u) == 0);
    CHECK(two->send(TAG_GO, "%ud", 8u) == 0 && two->recv(&tag, packet) == 1);
    CHECK((*packet)[0]->get_uint32_t() == 8);
    CHECK(net->send(103, TAG_GO, "%s", "only you") == 0 && net->get_Stream(103)->recv(&tag, packet) == 1);
    CHECK(packet->get_SourceRank() == 103);

    // Filters on the way down, the leaf's own included, and what is measured of each back end.
    Stream *stamped = net->new_Stream(all, TFILTER_NULL, SFILTER_WAITFORALL, net->load_FilterFunc(argv[3], "stamp"));
    CHECK(stamped && stamped->enable_PerformanceData(PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND));
    CHECK(stamped->send(TAG_GO, "%s", "x") == 0);
    for (int at = 0; at < 6; at++) {
        CHECK(stamped->recv(&tag, packet) == 1);
        std::string path;
        for (Rank up = tree->find_Node(packet->get_SourceRank())->get_Parent(); up != UnknownRank;
             up = tree->find_Node(up)->get_Parent())
            path = "/" + std::to_string(up) + "#1" + path;
        CHECK((*packet)[0]->get_string() == "x" + path);
    }
    rank_perfdata_map sent;
    CHECK(stamped->collect_PerformanceData(sent, PERFDATA_MET_NUM_PKTS, PERFDATA_CTX_SEND));
    for (int one = 100; one < 106; one++)
        CHECK(sent.count(one) && sent[one][0].u == 1);
    CHECK(sent[0][0].u == 1 && sent[static_cast<int>(leaves[0]->get_Rank())][0].u == 3);
    delete stamped;

    // One leaves; the others go on.
    CHECK(net->send(105, TAG_END, "") == 0);
    while (left < 1)
        usleep(1000);
    CHECK(tree->num_BackEndNodes() == 5);
    CHECK(sum->send(TAG_GO, "%d", 1) == 0 && sum->recv(&tag, packet) == 1);
    CHECK((*packet)[0]->get_int32_t() == 5);

    // A node between is killed: those below it are leaves of the tree, and go on below another.
    std::FILE *found = popen(("pgrep -o -P " + std::to_string(getpid()) + " mrnet_commnode").c_str(), "r");
    int node = 0;
    CHECK(found && std::fscanf(found, "%d", &node) == 1 && pclose(found) == 0);
    CHECK(kill(node, SIGKILL) == 0);
    for (int wave = 1; wave < 50; wave++) {
        CHECK(sum->send(TAG_GO, "%d", wave) == 0 && sum->recv(&tag, packet) == 1);
        CHECK((*packet)[0]->get_int32_t() == 5 * wave);
    }

    // One sends more than is taken here, one more than the others: the end frees both.
    CHECK(net->send(103, TAG_FLOOD, "%s", "on your own stream") == 0);
    PacketPtr more(new Packet(TAG_FLOOD, "%d", 1));
    const Rank to = 104;
    more->set_Destinations(&to, 1);
    CHECK(sum->send(more) == 0);
    while (!net->get_Stream(103)->has_Data())
        usleep(1000);
    delete net;
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
