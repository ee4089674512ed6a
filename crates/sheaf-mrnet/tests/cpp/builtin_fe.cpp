// The built-in filters on every numeric type, and those of arrays.
#include "check.h"

#include <set>
#include <string>

using namespace MRN;

static Communicator *all;
static Network *net;

template <class T> static T reduced(int filter, const std::string &format, T value)
{
    Stream *stream = net->new_Stream(all, filter, SFILTER_WAITFORALL);
    const void *data[] = { &value };
    CHECK(stream && stream->send(TAG_GO, data, format.c_str()) == 0);
    int tag = 0;
    PacketPtr packet;
    T result = T(0);
    CHECK(stream->recv(&tag, packet) == 1 && tag == TAG_GO);
    CHECK(packet->unpack(format.c_str(), &result) == 0);
    delete stream;
    return result;
}

template <class T> static void type(const char *letters, T value)
{
    const std::string format = std::string("%") + letters, array = std::string("%a") + letters;
    CHECK(reduced<T>(TFILTER_SUM, format, value) == T(value * T(all->size())));
    CHECK(reduced<T>(TFILTER_AVG, format, value) == value);
    CHECK(reduced<T>(TFILTER_MIN, format, value) == value);
    CHECK(reduced<T>(TFILTER_MAX, format, value) == value);
    Stream *stream = net->new_Stream(all, TFILTER_ARRAY_CONCAT, SFILTER_WAITFORALL);
    const T values[] = { value, T(1) };
    const uint32_t two = 2;
    const void *data[] = { values, &two };
    CHECK(stream->send(TAG_GO, data, array.c_str()) == 0);
    int tag = 0;
    PacketPtr packet;
    T *joined = nullptr;
    uint32_t count = 0;
    CHECK(stream->recv(&tag, packet) == 1 && packet->unpack(array.c_str(), &joined, &count) == 0);
    CHECK(count == 2 * all->size());
    for (uint32_t at = 0; at < count; at++)
        CHECK(joined[at] == values[at % 2]);
    std::free(joined);
    delete stream;
}

int main(int argc, char **argv)
{
    net = start(argc, argv);
    all = net->get_BroadcastCommunicator();
    type<int8_t>("c", 9);
    type<uint8_t>("uc", 11);
    type<int16_t>("hd", -300);
    type<uint16_t>("uhd", 300);
    type<int32_t>("d", -70000);
    type<uint32_t>("ud", 70000);
    type<int64_t>("ld", -5000000000);
    type<uint64_t>("uld", 5000000000u);
    type<float>("f", 0.5f);
    type<double>("lf", -0.125);

    Stream *classes = net->new_Stream(all, TFILTER_INT_EQ_CLASS, SFILTER_WAITFORALL);
    CHECK(classes && classes->send(TAG_CLASSES, "") == 0);
    int tag = 0;
    PacketPtr packet;
    uint32_t *values, *counts, *members, values_len, counts_len, members_len;
    CHECK(classes->recv(&tag, packet) == 1);
    CHECK(packet->unpack("%aud %aud %aud", &values, &values_len, &counts, &counts_len, &members, &members_len) == 0);
    CHECK(values_len == 2 && counts_len == 2 && members_len == all->size());
    CHECK(values[0] + values[1] == 1 && counts[0] + counts[1] == members_len);
    for (uint32_t at = 0; at < members_len; at++)
        CHECK(members[at] % 2 == values[at < counts[0] ? 0 : 1]);
    delete net;
    return 0;
}
