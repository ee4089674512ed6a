/* A back end in C. */
#include "mrnet_lightweight/MRNet.h"

enum { TAG_GO = 100, TAG_END, TAG_OTHER };

int main(int argc, char **argv)
{
    Packet_t *packet = (Packet_t *)malloc(sizeof *packet);
    Stream_t *stream = NULL;
    Network_t *net = Network_CreateNetworkBE(argc, argv);
    int tag = 0;
    if (!net || !packet)
        return 1;
    memset(packet, 0, sizeof *packet);
    if (Network_get_LocalRank(net) != net->local_rank || !Network_get_Stream(net, net->local_rank))
        return 1;
    while (tag != TAG_END) {
        int value = 0, waves = 0, wave, got;
        got = Network_recv_nonblock(net, &tag, packet, &stream);
        if (got == 0)
            got = Network_recv(net, &tag, packet, &stream);
        if (got != 1)
            break;
        if (tag != TAG_GO)
            continue;
        if (Packet_unpack(packet, "%s", &value) != -1 || Packet_unpack(packet, "%d %d", &value, &waves))
            return 1;
        for (wave = 0; wave < waves; wave++)
            if (Stream_send(stream, tag, "%d", value * wave))
                return 1;
        if (Stream_flush(stream))
            return 1;
    }
    Network_waitfor_ShutDown(net);
    delete_Packet_t(packet);
    delete_Network_t(net);
    return 0;
}
