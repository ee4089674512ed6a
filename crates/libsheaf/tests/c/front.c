/* A front end: adds up what its back ends send, wave by wave. */
#include <sheaf.h>
#include <sheaf_pack.h>
#include <stdio.h>

enum { TAG_GO = 100, TAG_END, RANKS_MAX = 64, WAVES = 10, VALUE = 7 };

/* The ranks of the back ends, out of the table of nodes. */
static size_t back_ends(const sheaf_net *net, uint32_t *ranks)
{
    char *table = sheaf_net_table(net), *line;
    size_t count = 0;
    for (line = table; line && *line && count < RANKS_MAX; line = strchr(line, '\n') + 1) {
        unsigned rank = 0, role = 0;
        int parent = 0;
        if (sscanf(line, "%u %d %u", &rank, &parent, &role) == 3 && role == 2)
            ranks[count++] = rank;
    }
    sheaf_text_free(table);
    return count;
}

/* Sends two numbers, or nothing. */
static int say(const sheaf_net *net, uint32_t stream, int32_t tag)
{
    sheaf_buf packet;
    int failed;
    sheaf_buf_lend(&packet, NULL, 0);
    failed = tag == TAG_GO ? sheaf_pack(&packet, "%d %d", VALUE, WAVES) : sheaf_pack(&packet, "");
    failed = failed || sheaf_stream_send(net, stream, tag, packet.data, packet.len, NULL, 0);
    sheaf_buf_free(&packet);
    return failed;
}

static int sums(const sheaf_net *net)
{
    uint32_t ranks[RANKS_MAX], stream = sheaf_stream_new(net);
    struct sheaf_open open;
    int32_t wave, sum = 0;
    memset(&open, 0, sizeof open);
    open.members = ranks;
    open.members_len = back_ends(net, ranks);
    open.filter = "sum";
    open.sync = SHEAF_WAIT_FOR_ALL;
    if (sheaf_stream_open(net, stream, &open) || say(net, stream, TAG_GO))
        return -1;
    for (wave = 0; wave < WAVES; wave++) {
        sheaf_message *message = NULL;
        if (sheaf_recv(net, stream, 60000, &message) != 1 ||
            sheaf_unpack(message->data, message->len, "%d", &sum) ||
            sum != VALUE * wave * (int32_t)open.members_len)
            return -1;
        sheaf_message_free(message);
    }
    printf("%d waves of %d back ends\n", WAVES, (int)open.members_len);
    return say(net, stream, TAG_END);
}

int main(int argc, char **argv)
{
    char topology[4096];
    struct sheaf_create create;
    sheaf_net *net;
    FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
    int failed;
    if (!file)
        return 2;
    topology[fread(topology, 1, sizeof topology - 1, file)] = 0;
    fclose(file);
    memset(&create, 0, sizeof create);
    create.topology = topology;
    create.back_end = argv[2];
    create.startup_timeout_ms = 60000;
    net = sheaf_net_create(&create);
    failed = !net || sums(net);
    if (failed)
        fprintf(stderr, "%s\n", sheaf_error_message());
    sheaf_net_shut_down(net);
    sheaf_net_free(net);
    return failed;
}
