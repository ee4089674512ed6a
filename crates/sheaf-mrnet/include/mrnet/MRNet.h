// MRNet's interface to trees of Sheaf: what a front end or a back end includes.
#ifndef MRNET_MRNET_H
#define MRNET_MRNET_H

#include "mrnet/Types.h"
#include "mrnet/Error.h"
#include "mrnet/FilterIds.h"
#include "mrnet/DataElement.h"
#include "mrnet/Packet.h"
#include "mrnet/NetworkTopology.h"
#include "mrnet/CommunicationNode.h"
#include "mrnet/Communicator.h"
#include "mrnet/Event.h"
#include "mrnet/Stream.h"
#include "mrnet/Network.h"
#include "mrnet/Tree.h"
#include "mrnet/FilterAbi.h"

#endif
