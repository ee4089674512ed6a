/* A back end: multiplies what it is sent by the number of each wave. */
#include <sheaf.h>
#include <sheaf_pack.h>

enum { TAG_GO = 100, TAG_END };

int main(void)
{
    sheaf_net *net = sheaf_net_join();
    sheaf_message *message = NULL;
    if (!net)
        return 1;
    while (sheaf_recv(net, SHEAF_ANY_STREAM, -1, &message) == 1 && message->tag != TAG_END) {
        int32_t value = 0, waves = 0, wave;
        if (sheaf_unpack(message->data, message->len, "%d %d", &value, &waves))
            return 2;
        for (wave = 0; wave < waves; wave++) {
            uint8_t lent[SHEAF_LENT_BYTES];
            sheaf_buf packet;
            sheaf_buf_lend(&packet, lent, sizeof lent);
            if (sheaf_pack(&packet, "%d", value * wave) ||
                sheaf_stream_send(net, message->stream, TAG_GO, packet.data, packet.len, NULL, 0))
                return 3;
            sheaf_buf_free(&packet);
        }
        sheaf_message_free(message);
    }
    sheaf_message_free(message);
    sheaf_net_wait_over(net, 60000);
    sheaf_net_shut_down(net);
    sheaf_net_free(net);
    return 0;
}
