// Every type goes down and comes back, by stream and by network, waiting and not.
#include "check.h"

#include <string>

using namespace MRN;

static Network *net;
static Stream *stream;
static size_t back_ends;

static PacketPtr next(int how)
{
    int tag = 0, got = 0;
    PacketPtr packet;
    Stream *from = nullptr;
    do {
        if (how < 2)
            got = stream->recv(&tag, packet, how == 0);
        else
            got = net->recv(&tag, packet, &from, how == 2);
    } while (got == 0);
    CHECK(got == 1 && tag == TAG_GO);
    CHECK(how < 2 || from == stream);
    return packet;
}

/// Sends a packet and gets it back from every back end.
static void echo(PacketPtr sent)
{
    for (int how = 0; how < 4; how++) {
        CHECK(stream->send(sent) == 0);
        for (size_t at = 0; at < back_ends; at++) {
            const PacketPtr packet = next(how);
            CHECK(std::string(packet->get_FormatString()) == sent->get_FormatString());
            CHECK(packet->get_SourceRank() != UnknownRank);
            const sheaf_reader a = packet->wire(), b = sent->wire();
            CHECK(a.left == b.left && std::memcmp(a.at, b.at, a.left) == 0);
        }
    }
}

template <class T> static void numbers(const char *letters, T value, bool large)
{
    const std::string scalar = std::string("%") + letters, array = std::string("%a") + letters,
                      big = std::string("%A") + letters;
    const T values[] = { value, T(0), T(1), T(value / 2) };
    const uint32_t count = 4;
    const uint64_t count64 = 4;
    const void *data[] = { &value, values, &count, values, &count64 };
    echo(PacketPtr(new Packet(stream->get_Id(), TAG_GO, data, (scalar + " " + array + " " + big).c_str())));
    if (!large)
        return;
    const std::vector<T> many(100000, value);
    const uint32_t length = 100000;
    const void *all[] = { many.data(), &length };
    echo(PacketPtr(new Packet(stream->get_Id(), TAG_GO, all, array.c_str())));
}

static void texts()
{
    const char *words[] = { "one", "", "three and a bit" };
    echo(PacketPtr(new Packet(stream->get_Id(), TAG_GO, "%s %as %As", "text", words, 3u, words, uint64_t(3))));
    CHECK(stream->send(TAG_GO, "%s %as", "again", words, 3u) == 0);
    for (size_t at = 0; at < back_ends; at++) {
        char *text = nullptr, **list = nullptr;
        uint32_t count = 0;
        const PacketPtr packet = next(0);
        CHECK(packet->unpack("%d", &count) == -1 && packet->has_Error());
        CHECK(packet->unpack("%s %as", &text, &list, &count) == 0);
        CHECK(!std::strcmp(text, "again") && count == 3 && !std::strcmp(list[2], words[2]));
        std::free(text);
        for (uint32_t word = 0; word < count; word++)
            std::free(list[word]);
        std::free(list);
        // What stays the packet's need not be freed.
        packet->set_DestroyData(true);
        CHECK(packet->unpack("%s %as", &text, &list, &count) == 0 && !std::strcmp(list[0], "one"));
        DataType type = UNKNOWN_T;
        uint64_t length = 0;
        const void *inside = (*packet)[1]->get_array(&type, &length);
        CHECK(inside == list && type == STRING_ARRAY_T && length == 3);
    }
}

int main(int argc, char **argv)
{
    net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    back_ends = all->size();
    stream = net->new_Stream(all, TFILTER_NULL, SFILTER_WAITFORALL);
    CHECK(stream);
    numbers<int8_t>("c", -7, false);
    numbers<uint8_t>("uc", 200, true);
    numbers<int16_t>("hd", -30000, false);
    numbers<uint16_t>("uhd", 60000, false);
    numbers<int32_t>("d", -2000000000, true);
    numbers<uint32_t>("ud", 4000000000u, false);
    numbers<int64_t>("ld", -4000000000000000000, false);
    numbers<uint64_t>("uld", 18000000000000000000u, false);
    numbers<float>("f", 1.5f, false);
    numbers<double>("lf", -2.25e300, true);
    texts();
    CHECK(stream->send(TAG_GO, "%q") == -1 && stream->has_Error());
    PacketPtr packet;
    int tag = 0;
    Stream *from = nullptr;
    CHECK(stream->recv(&tag, packet, false) == 0 && net->recv(&tag, packet, &from, false) == 0);
    Packet a(1, TAG_GO, "%d %s", 5, "x"), b(1, TAG_GO, "%d %s", 5, "x"), c(1, TAG_GO, "%d %s", 6, "x");
    CHECK(a == b && !(a == c));
    a[0]->set_int32_t(6);
    CHECK(a == c && a.get_NumDataElements() == 2 && a[2] == nullptr);
    delete net;
    return 0;
}
