// A back end as an end point of streams.
#ifndef MRNET_COMMUNICATIONNODE_H
#define MRNET_COMMUNICATIONNODE_H

#include "mrnet/Types.h"

namespace MRN {

/// One back end.
class CommunicationNode {
public:
    std::string get_HostName() const { return _host; }
    Port get_Port() const { return _port; }
    Rank get_Rank() const { return _rank; }

private:
    friend class Network;
    CommunicationNode(const std::string &host, Port port, Rank rank) : _host(host), _port(port), _rank(rank) {}
    std::string _host;
    Port _port;
    Rank _rank;
};

} // namespace MRN

#endif
