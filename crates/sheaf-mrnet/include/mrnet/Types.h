// Names, numbers and small types of MRNet's interface.
#ifndef MRNET_TYPES_H
#define MRNET_TYPES_H

#include "mrnet_lightweight/DataTypes.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace MRN {

typedef uint32_t Rank;
typedef uint16_t Port;
typedef int FilterId;

const Rank UnknownRank = static_cast<Rank>(-1);
const Port UnknownPort = static_cast<Port>(-1);

/// Tags below the first of applications are reserved.
const int FirstSystemTag = 0;
const int FirstApplicationTag = 100;

class Network;
class NetworkTopology;
class Communicator;
class CommunicationNode;
class Stream;
class Packet;
class TopologyLocalInfo;
typedef std::shared_ptr<Packet> PacketPtr;

/// Types of packet elements.
enum DataType { MRNET_DATA_TYPES };

/// One measured value; which member holds it depends on the metric.
union perfdata_t {
    int64_t i;
    uint64_t u;
    double d;
};

/// Measured values by the node's rank; of several nodes together under their number, negated.
typedef std::map<int, std::vector<perfdata_t> > rank_perfdata_map;

enum perfdata_mettype_t { PERFDATA_TYPE_UINT = 0, PERFDATA_TYPE_INT = 1, PERFDATA_TYPE_FLOAT = 2 };

enum perfdata_metric_t {
    PERFDATA_MET_NUM_BYTES = 0,
    PERFDATA_MET_NUM_PKTS = 1,
    PERFDATA_MET_ELAPSED_SEC = 2,
    PERFDATA_MET_CPU_SYS_PCT = 3,
    PERFDATA_MET_CPU_USR_PCT = 4,
    PERFDATA_MET_MEM_VIRT_KB = 5,
    PERFDATA_MET_MEM_PHYS_KB = 6,
    PERFDATA_MAX_MET = 7
};

enum perfdata_context_t {
    PERFDATA_CTX_NONE = 0,
    PERFDATA_CTX_SEND,
    PERFDATA_CTX_RECV,
    PERFDATA_CTX_FILT_IN,
    PERFDATA_CTX_FILT_OUT,
    PERFDATA_CTX_SYNCFILT_IN,
    PERFDATA_CTX_SYNCFILT_OUT,
    PERFDATA_CTX_PKT_RECV,
    PERFDATA_CTX_PKT_SEND,
    PERFDATA_CTX_PKT_NET_SENDCHILD,
    PERFDATA_CTX_PKT_NET_SENDPAR,
    PERFDATA_CTX_PKT_INT_DATAPAR,
    PERFDATA_CTX_PKT_INT_DATACHILD,
    PERFDATA_CTX_PKT_FILTER,
    PERFDATA_CTX_PKT_RECV_TO_FILTER,
    PERFDATA_CTX_PKT_FILTER_TO_SEND,
    PERFDATA_MAX_CTX
};

/// Which filter of a stream parameters are for.
enum FilterType {
    FILTER_UPSTREAM_TRANS,
    FILTER_UPSTREAM_SYNC,
    FILTER_DOWNSTREAM_TRANS
};

} // namespace MRN

#endif
