// A set of back ends.
#ifndef MRNET_COMMUNICATOR_H
#define MRNET_COMMUNICATOR_H

#include "mrnet/CommunicationNode.h"
#include "mrnet/Error.h"

#include <set>

namespace MRN {

/// The back ends that a stream is to join.
class Communicator : public Error {
public:
    /// False for a rank that is no back end.
    bool add_EndPoint(Rank rank);
    bool add_EndPoint(CommunicationNode *node) { return node && _nodes.insert(node).second; }
    const std::set<CommunicationNode *> &get_EndPoints() const { return _nodes; }
    std::set<Rank> get_Ranks() const
    {
        std::set<Rank> ranks;
        for (const CommunicationNode *node : _nodes)
            ranks.insert(node->get_Rank());
        return ranks;
    }
    unsigned int size() const { return static_cast<unsigned>(_nodes.size()); }

private:
    friend class Network;
    explicit Communicator(Network *network) : _network(network) {}
    Network *_network;
    std::set<CommunicationNode *> _nodes;
};

} // namespace MRN

#endif
