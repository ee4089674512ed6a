// Filters of the user's on the way down: at every node, by rank, with parameters, for some members.
#include "check.h"

#include <string>

using namespace MRN;

/// What every back end says it got, by rank.
static std::map<Rank, std::string> heard(Stream *stream, size_t count)
{
    std::map<Rank, std::string> all;
    for (size_t at = 0; at < count; at++) {
        int tag = 0;
        PacketPtr packet;
        CHECK(stream->recv(&tag, packet) == 1 && tag == TAG_GO);
        all[packet->get_SourceRank()] = (*packet)[0]->get_string();
    }
    return all;
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    NetworkTopology *tree = net->get_NetworkTopology();
    const size_t n = all->size();
    const int stamp = net->load_FilterFunc(argv[3], "stamp"), answer = net->load_FilterFunc(argv[3], "answer");
    CHECK(stamp > 0 && answer > stamp);

    Stream *down = net->new_Stream(all, TFILTER_NULL, SFILTER_DONTWAIT, stamp);
    CHECK(down && down->send(TAG_GO, "%s", "x") == 0);
    for (const auto &one : heard(down, n)) {
        const std::string parent = std::to_string(tree->find_Node(one.first)->get_Parent());
        CHECK(one.second == "x/0#1/" + parent + "#1");
    }
    // To one back end only: the nodes on its way count the packet, the others do not.
    const Rank first = (*all->get_EndPoints().begin())->get_Rank();
    const Rank above = tree->find_Node(first)->get_Parent();
    PacketPtr one(new Packet(down->get_Id(), TAG_GO, "%s", "y"));
    CHECK(one->set_Destinations(&first, 1) && down->send(one) == 0);
    CHECK(heard(down, 1)[first] == "y/0#2/" + std::to_string(above) + "#2");
    // The front end's filter lets nothing through of this.
    CHECK(down->send(TAG_GO, "%s", "-") == 0);
    CHECK(down->set_FilterParameters(FILTER_DOWNSTREAM_TRANS, "%s", "!") == 0);
    CHECK(down->send(TAG_GO, "%s", "z") == 0);
    for (const auto &two : heard(down, n)) {
        const Rank parent = tree->find_Node(two.first)->get_Parent();
        CHECK(two.second == "z/0!4/" + std::to_string(parent) + (parent == above ? "!3" : "!2"));
    }
    CHECK(!down->has_Data());
    delete down;

    // By rank, and what the front end's sends back.
    const std::string here = std::to_string(stamp) + " => " + std::to_string(above) + "; 0 => *;";
    Stream *by_rank = net->new_Stream(all, "0 => *;", std::to_string(SFILTER_WAITFORALL) + " => *;", here);
    CHECK(by_rank && by_rank->send(TAG_GO, "%s", "x") == 0);
    for (const auto &three : heard(by_rank, n)) {
        const bool passed = tree->find_Node(three.first)->get_Parent() == above;
        CHECK(three.second == (passed ? "x/" + std::to_string(above) + "#1" : "x"));
    }
    Stream *told = net->new_Stream(all, TFILTER_NULL, SFILTER_WAITFORALL, answer);
    int tag = 0;
    PacketPtr packet;
    CHECK(told && told->send(TAG_GO, "%s", "x") == 0 && told->recv(&tag, packet) == 1);
    CHECK(tag == FirstApplicationTag + 50 && std::string((*packet)[0]->get_string()) == "well done");
    CHECK(heard(told, n).size() == n);

    // Built-in ones change nothing downwards; those of topology updates join arrays upwards.
    Stream *update = net->new_Stream(all, TFILTER_TOPO_UPDATE, SFILTER_WAITFORALL, TFILTER_TOPO_UPDATE_DOWNSTREAM);
    const int32_t type = 1;
    const uint32_t parent = 7, child = 9;
    const char *host = "n1";
    const uint16_t port = 4000;
    CHECK(update && update->send(TAG_GO, "%ad %aud %aud %as %auhd", &type, 1, &parent, 1, &child, 1, &host, 1, &port, 1) == 0);
    CHECK(update->recv(&tag, packet) == 1);
    uint64_t length = 0;
    const uint32_t *children = static_cast<const uint32_t *>((*packet)[2]->get_array(nullptr, &length));
    CHECK(length == n && children[n - 1] == 9);
    delete net;
    return 0;
}
