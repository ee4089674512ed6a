// The shape of a running tree.
#ifndef MRNET_NETWORKTOPOLOGY_H
#define MRNET_NETWORKTOPOLOGY_H

#include "mrnet/Error.h"

#include <cmath>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>

namespace MRN {

/// The nodes of a tree and how they hang together; follows what happens to the tree.
class NetworkTopology : public Error {
public:
    /// One node. It lives as long as the topology, even when it is gone from the tree.
    class Node {
    public:
        std::string get_HostName() const { return _host; }
        Port get_Port() const { return _port; }
        Rank get_Rank() const { return _rank; }
        Rank get_Parent() const { return _parent ? _parent->_rank : UnknownRank; }
        const std::set<Node *> &get_Children() const { return _children; }
        unsigned int get_NumChildren() const { return static_cast<unsigned>(_children.size()); }
        unsigned int find_SubTreeHeight() const
        {
            unsigned int height = 0;
            for (const Node *child : _children)
                height = std::max(height, child->find_SubTreeHeight() + 1);
            return height;
        }
        bool is_BackEnd() const { return _role == 2; }
        bool failed() const { return _gone; }

    private:
        friend class NetworkTopology;
        Node() : _rank(UnknownRank), _port(UnknownPort), _role(0), _gone(false), _parent(nullptr) {}
        std::string _host;
        Rank _rank;
        Port _port;
        int _role;
        bool _gone;
        Node *_parent;
        std::set<Node *> _children;
    };

    explicit NetworkTopology(const sheaf_net *net) : _net(net), _version(0) {}
    /// From the text of a topology file, without a running tree.
    explicit NetworkTopology(const std::string &text) : _net(nullptr), _version(1)
    {
        char *table = sheaf_topology_table(text.c_str());
        if (table)
            read(table);
        else
            error_of_library();
        sheaf_text_free(table);
    }

    /// Writes a topology file.
    void print_TopologyFile(const char *file) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        std::ofstream out(file);
        for (Node *node : in_order()) {
            if (node->_children.empty() && node->_parent)
                continue;
            out << node->_host << ":" << node->_rank << (node->_children.empty() ? "" : " =>");
            for (const Node *child : sorted(node->_children))
                out << " " << child->_host << ":" << child->_rank;
            out << " ;\n";
        }
    }
    /// Writes the tree for Graphviz.
    void print_DOTGraph(const char *file) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        std::ofstream out(file);
        out << "digraph tree {\n";
        for (const Node *node : in_order())
            out << "  " << node->_rank << " [label=\"" << node->_host << " #" << node->_rank << "\"];\n";
        for (const Node *node : in_order())
            for (const Node *child : sorted(node->_children))
                out << "  " << node->_rank << " -> " << child->_rank << ";\n";
        out << "}\n";
    }
    void print(FILE *file) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        for (const Node *node : in_order())
            std::fprintf(file, "%s:%u parent %d\n", node->_host.c_str(), node->_rank, static_cast<int>(node->get_Parent()));
    }

    unsigned int get_NumNodes() const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        return static_cast<unsigned>(in_order().size());
    }
    /// Fan-out is that of nodes that have children.
    void get_TreeStatistics(unsigned int &nodes, unsigned int &depth, unsigned int &min_fanout,
                            unsigned int &max_fanout, double &avg_fanout, double &stddev_fanout) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        unsigned int parents = 0;
        double sum = 0, squares = 0;
        nodes = get_NumNodes();
        const Node *root = get_Root();
        depth = root ? root->find_SubTreeHeight() : 0;
        min_fanout = max_fanout = 0;
        for (const Node *node : in_order()) {
            const unsigned int fanout = node->get_NumChildren();
            if (!fanout)
                continue;
            min_fanout = parents++ ? std::min(min_fanout, fanout) : fanout;
            max_fanout = std::max(max_fanout, fanout);
            sum += fanout;
            squares += static_cast<double>(fanout) * fanout;
        }
        avg_fanout = parents ? sum / parents : 0;
        stddev_fanout = parents ? std::sqrt(std::max(0.0, squares / parents - avg_fanout * avg_fanout)) : 0;
    }

    Node *get_Root() const { return find_Node(0); }
    /// The node of that rank; null when it is not there.
    Node *find_Node(Rank rank) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        auto found = _nodes.find(rank);
        return found == _nodes.end() || found->second->_gone ? nullptr : found->second.get();
    }
    /// Nodes without children.
    void get_Leaves(std::vector<Node *> &leaves) const
    {
        select(leaves, [](const Node *node) { return node->_children.empty(); });
    }
    /// Nodes with children.
    void get_ParentNodes(std::set<Node *> &nodes) const
    {
        select(nodes, [](const Node *node) { return !node->_children.empty(); });
    }
    /// Nodes whose parent is gone.
    void get_OrphanNodes(std::set<Node *> &nodes) const
    {
        select(nodes, [](const Node *node) { return !node->_parent && node->_rank != 0; });
    }
    void get_BackEndNodes(std::set<Node *> &nodes) const
    {
        select(nodes, [](const Node *node) { return node->_role == 2; });
    }
    unsigned int num_BackEndNodes() const
    {
        std::set<Node *> nodes;
        get_BackEndNodes(nodes);
        return static_cast<unsigned>(nodes.size());
    }
    void get_InternalNodes(std::set<Node *> &nodes) const
    {
        select(nodes, [](const Node *node) { return node->_role == 1; });
    }
    unsigned int num_InternalNodes() const
    {
        std::set<Node *> nodes;
        get_InternalNodes(nodes);
        return static_cast<unsigned>(nodes.size());
    }
    void get_Descendants(Node *node, std::vector<Node *> &below) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        for (Node *child : sorted(node->_children)) {
            below.push_back(child);
            get_Descendants(child, below);
        }
    }
    void get_LeafDescendants(Node *node, std::vector<Node *> &leaves) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        std::vector<Node *> below;
        get_Descendants(node, below);
        for (Node *one : below)
            if (one->_children.empty())
                leaves.push_back(one);
    }

private:
    NetworkTopology(const NetworkTopology &);
    NetworkTopology &operator=(const NetworkTopology &);

    static void put(std::vector<Node *> &into, Node *node) { into.push_back(node); }
    static void put(std::set<Node *> &into, Node *node) { into.insert(node); }
    template <class Into, class Wanted> void select(Into &into, Wanted wanted) const
    {
        std::lock_guard<std::recursive_mutex> guard(fresh());
        for (Node *node : in_order())
            if (wanted(node))
                put(into, node);
    }

    static std::vector<Node *> sorted(const std::set<Node *> &nodes)
    {
        std::map<Rank, Node *> by_rank;
        for (Node *node : nodes)
            by_rank[node->_rank] = node;
        std::vector<Node *> all;
        for (auto &entry : by_rank)
            all.push_back(entry.second);
        return all;
    }
    std::vector<Node *> in_order() const
    {
        std::vector<Node *> all;
        for (auto &entry : _nodes)
            if (!entry.second->_gone)
                all.push_back(entry.second.get());
        return all;
    }

    /// Reads the tree again if it has changed; the lock is for the caller to hold.
    std::recursive_mutex &fresh() const
    {
        std::lock_guard<std::recursive_mutex> guard(_mutex);
        const uint64_t now = _net ? sheaf_net_version(_net) : _version;
        if (now != _version) {
            char *table = sheaf_net_table(_net);
            if (table)
                read(table);
            sheaf_text_free(table);
            _version = now;
        }
        return _mutex;
    }

    void read(const char *table) const
    {
        std::istringstream lines(table);
        std::set<Rank> seen;
        std::map<Rank, long> parents;
        long parent;
        unsigned long rank;
        int role;
        unsigned port;
        std::string host;
        while (lines >> rank >> parent >> role >> port >> host) {
            std::unique_ptr<Node> &node = _nodes[static_cast<Rank>(rank)];
            if (!node)
                node.reset(new Node());
            node->_rank = static_cast<Rank>(rank);
            node->_role = role;
            node->_port = static_cast<Port>(port);
            node->_host = host;
            seen.insert(node->_rank);
            parents[node->_rank] = parent;
        }
        for (auto &entry : _nodes) {
            entry.second->_gone = !seen.count(entry.first);
            entry.second->_parent = nullptr;
            entry.second->_children.clear();
        }
        for (auto &entry : parents) {
            auto found = _nodes.find(static_cast<Rank>(entry.second));
            if (entry.second < 0 || found == _nodes.end() || found->second->_gone)
                continue;
            Node *child = _nodes[entry.first].get();
            child->_parent = found->second.get();
            found->second->_children.insert(child);
        }
    }

    const sheaf_net *_net;
    mutable std::recursive_mutex _mutex;
    mutable uint64_t _version;
    mutable std::map<Rank, std::unique_ptr<Node> > _nodes;
};

/// Where in the tree a filter runs.
class TopologyLocalInfo {
public:
    TopologyLocalInfo(const NetworkTopology *topology, const NetworkTopology::Node *node)
        : _topology(topology), _rank(node ? node->get_Rank() : UnknownRank), _children(0), _siblings(0),
          _descendants(0), _leaf_descendants(0), _root_distance(0), _max_leaf_distance(0)
    {
        if (topology && node)
            measure(*topology, node);
    }
    /// From numbers.
    TopologyLocalInfo(Rank rank, unsigned children, unsigned siblings, unsigned descendants,
                      unsigned leaf_descendants, unsigned root_distance, unsigned max_leaf_distance)
        : _topology(nullptr), _rank(rank), _children(children), _siblings(siblings), _descendants(descendants),
          _leaf_descendants(leaf_descendants), _root_distance(root_distance), _max_leaf_distance(max_leaf_distance)
    {
    }

    Rank get_Rank() const { return _rank; }
    unsigned int get_NumChildren() const { return _children; }
    unsigned int get_NumSiblings() const { return _siblings; }
    unsigned int get_NumDescendants() const { return _descendants; }
    unsigned int get_NumLeafDescendants() const { return _leaf_descendants; }
    unsigned int get_RootDistance() const { return _root_distance; }
    unsigned int get_MaxLeafDistance() const { return _max_leaf_distance; }
    /// The whole tree, where it is known (not at inner nodes).
    const NetworkTopology *get_Topology() const { return _topology; }

private:
    void measure(const NetworkTopology &topology, const NetworkTopology::Node *node)
    {
        std::vector<NetworkTopology::Node *> below, leaves;
        NetworkTopology::Node *mine = const_cast<NetworkTopology::Node *>(node);
        topology.get_Descendants(mine, below);
        topology.get_LeafDescendants(mine, leaves);
        _children = node->get_NumChildren();
        _descendants = static_cast<unsigned>(below.size());
        _leaf_descendants = static_cast<unsigned>(leaves.size());
        _max_leaf_distance = node->find_SubTreeHeight();
        NetworkTopology::Node *parent = topology.find_Node(node->get_Parent());
        _siblings = parent ? parent->get_NumChildren() - 1 : 0;
        for (; parent; parent = topology.find_Node(parent->get_Parent()))
            _root_distance++;
    }

    const NetworkTopology *_topology;
    Rank _rank;
    unsigned int _children, _siblings, _descendants, _leaf_descendants, _root_distance, _max_leaf_distance;
};

} // namespace MRN

#endif
