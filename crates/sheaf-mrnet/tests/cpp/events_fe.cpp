// Topology, events and trees of shapes.
#include "check.h"

#include "xplat/Monitor.h"
#include "xplat/Mutex.h"
#include "xplat/NetUtils.h"
#include "xplat/Thread.h"
#include "xplat/xplat_utils.h"

#include <atomic>
#include <poll.h>
#include <set>
#include <string>

using namespace MRN;

static std::atomic<int> removed(0), data(0), once(0);

static void on_remove(Event *event, void *context)
{
    CHECK(event->get_Class() == Event::TOPOLOGY_EVENT && event->get_Type() == TopologyEvent::TOPOL_REMOVE_NODE);
    const TopologyEvent::TopolEventData *what = static_cast<TopologyEvent::TopolEventData *>(event->get_Data());
    *static_cast<Rank *>(context) = what->get_Rank();
    ++removed;
}
static void on_data(Event *, void *) { ++data; }
static void on_once(Event *, void *) { ++once; }

static void topology(Network *net)
{
    NetworkTopology *tree = net->get_NetworkTopology();
    unsigned nodes, depth, least, most;
    double mean, spread;
    tree->get_TreeStatistics(nodes, depth, least, most, mean, spread);
    CHECK(nodes == 7 && depth == 2 && least == 2 && most == 2 && mean == 2 && spread == 0);
    CHECK(tree->get_NumNodes() == 7 && tree->num_BackEndNodes() == 4 && tree->num_InternalNodes() == 2);
    std::vector<NetworkTopology::Node *> leaves, below;
    std::set<NetworkTopology::Node *> parents, orphans;
    tree->get_Leaves(leaves);
    tree->get_ParentNodes(parents);
    tree->get_OrphanNodes(orphans);
    CHECK(leaves.size() == 4 && parents.size() == 3 && orphans.empty());
    NetworkTopology::Node *root = tree->get_Root();
    CHECK(root->get_Rank() == net->get_LocalRank() && root->get_Parent() == UnknownRank);
    CHECK(root->get_HostName() == "localhost" && root->find_SubTreeHeight() == 2);
    tree->get_Descendants(root, below);
    CHECK(below.size() == 6 && below[0]->get_NumChildren() == 2 && below[0]->get_Parent() == 0);
    below.clear();
    tree->get_LeafDescendants(tree->find_Node(1), below);
    CHECK(below.size() == 2 && tree->find_Node(99) == nullptr);
    const TopologyLocalInfo place(tree, tree->find_Node(1));
    CHECK(place.get_NumChildren() == 2 && place.get_NumSiblings() == 1 && place.get_RootDistance() == 1
          && place.get_MaxLeafDistance() == 1 && place.get_NumDescendants() == 2);
}

static void shapes(const std::string &directory)
{
    Tree::HostList hosts;
    CHECK(Tree::get_HostsFromBuffer("a b:2 c # d\n", hosts) && hosts.size() == 3 && hosts.back().first == "c");
    BalancedTree balanced("2^2", "fe", hosts, 4);
    KnomialTree knomial("2@8", "fe", hosts, 4);
    GenericTree generic("2:2,2", "fe", hosts, 4);
    const std::string file = directory + "/made";
    for (Tree *tree : std::vector<Tree *>{ &balanced, &knomial, &generic }) {
        CHECK(!tree->has_Error() && tree->create_TopologyFile(file.c_str()));
        NetworkTopology read(tree->get_TopologyString());
        CHECK(!read.has_Error() && read.get_NumNodes() >= 7);
        read.print_TopologyFile(file.c_str());
        read.print_DOTGraph((file + ".dot").c_str());
    }
    BalancedTree few("9^3", "fe", hosts);
    CHECK(few.has_Error() && !few.create_TopologyFile(file.c_str()));
    CHECK(NetworkTopology(std::string("a:0 => b:0")).has_Error());
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    topology(net);
    shapes(argv[3]);
    Rank gone = UnknownRank;
    CHECK(net->register_EventCallback(Event::TOPOLOGY_EVENT, TopologyEvent::TOPOL_REMOVE_NODE, on_remove, &gone));
    CHECK(net->register_EventCallback(Event::DATA_EVENT, DataEvent::DATA_AVAILABLE, on_data, nullptr));
    CHECK(net->register_EventCallback(Event::DATA_EVENT, Event::EVENT_TYPE_ALL, on_once, nullptr, true));
    Stream *stream = net->new_Stream(net->get_BroadcastCommunicator(), TFILTER_SUM, SFILTER_WAITFORALL);
    int tag = 0;
    PacketPtr packet;
    for (int wave = 0; wave < 3; wave++) {
        CHECK(stream->send(TAG_GO, "%d", 1) == 0 && stream->recv(&tag, packet) == 1);
        CHECK((*packet)[0]->get_int32_t() == 4);
    }
    while (data < 3)
        usleep(1000);
    CHECK(once == 1);
    CHECK(net->remove_EventCallbacks(Event::DATA_EVENT));

    const int fd = net->get_EventNotificationFd(Event::TOPOLOGY_EVENT);
    const Rank victim = (*net->get_BroadcastCommunicator()->get_EndPoints().begin())->get_Rank();
    CHECK(net->num_EventsPending() == 0 && net->next_Event() == nullptr);
    CHECK(net->send(victim, TAG_LEAVE, "") == 0);
    struct pollfd one = { fd, POLLIN, 0 };
    CHECK(poll(&one, 1, 60000) == 1);
    while (removed == 0)
        usleep(1000);
    CHECK(gone == victim && net->num_EventsPending() == 1);
    Event *event = net->next_Event();
    CHECK(event && event->get_Type() == TopologyEvent::TOPOL_REMOVE_NODE);
    delete event;
    net->clear_EventNotificationFd(Event::TOPOLOGY_EVENT);
    CHECK(poll(&one, 1, 0) == 0);
    net->close_EventNotificationFd(Event::TOPOLOGY_EVENT);
    CHECK(net->get_NetworkTopology()->find_Node(victim) == nullptr);
    CHECK(net->get_NetworkTopology()->num_BackEndNodes() == 3);
    // The others go on.
    CHECK(stream->send(TAG_GO, "%d", 1) == 0 && stream->recv(&tag, packet) == 1);
    CHECK((*packet)[0]->get_int32_t() == 3);
    XPlat::Mutex lock;
    CHECK(lock.Lock() == 0 && lock.Unlock() == 0 && XPlat::NetUtils::IsLocalHost("localhost"));
    delete net;

    Network *bad = Network::CreateNetworkFE("/nowhere", argv[2], nullptr);
    CHECK(bad->has_Error() && bad->get_Error() == ERR_SYSTEM);
    delete bad;
    Network *text = Network::CreateNetworkFE("a:0 => ;;", argv[2], nullptr, nullptr, true, true);
    CHECK(text->has_Error() && text->get_Error() == ERR_TOPOLOGY_FORMAT);
    delete text;
    Network *dead = Network::CreateNetworkFE("localhost:0 => localhost:1 ;", "/bin/false", nullptr, nullptr, true, true);
    CHECK(dead->has_Error() && dead->get_Error() == ERR_NETWORK_FAILURE);
    CHECK(dead->get_ErrorMessage().find("localhost") != std::string::npos);
    delete dead;
    return 0;
}
