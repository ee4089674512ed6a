// Forged packets and formats: reading them stays within their bytes, and what is no packet is an error.
// Built with the compiler's checks of memory, which end the program.
#include "check.h"

#include <string>

using namespace MRN;

static uint64_t state;
static uint32_t random_below(size_t bound)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return bound ? static_cast<uint32_t>((state >> 33) % bound) : 0;
}

static const char *const formats[] = {
    "%c %uc %hd %uhd %d %ud %ld %uld %f %lf %s", "%ac %auc %ahd %auhd %ad %aud", "%ald %auld %af %alf %as",
    "%As %Ac %Ald", "%s %d %as", "",
};

/// A packet of each format.
static std::vector<uint8_t> seed(size_t which)
{
    static const char text[] = "some bytes for arrays of any type, more than any of them takes";
    static const char *const texts[] = { "one", "", "three" };
    const void *data[32];
    const uint32_t count = 3;
    const uint64_t large = 3;
    size_t at = 0;
    sheaf_field fields[SHEAF_FIELDS_MAX];
    const int len = sheaf_parse_format(formats[which], fields);
    for (int field = 0; field < len; field++) {
        const bool array = fields[field].shape != SHEAF_SCALAR, string = fields[field].kind == SHEAF_STR;
        data[at++] = array && string ? static_cast<const void *>(texts) : text;
        if (array)
            data[at++] = fields[field].shape == SHEAF_ARRAY ? static_cast<const void *>(&count) : &large;
    }
    sheaf_buf buf = { nullptr, 0, 0, 0, nullptr };
    CHECK(sheaf_pack_pointers(&buf, formats[which], data) == 0);
    std::vector<uint8_t> bytes(buf.data, buf.data + buf.len);
    std::free(buf.data);
    return bytes;
}

static std::vector<uint8_t> forged(std::vector<uint8_t> bytes)
{
    static const uint8_t telling[] = { 0, 1, 0x7f, 0x80, 0xff, '%', 'a', 'A', 's', 'd' };
    for (uint32_t changes = random_below(4); changes > 0 && !bytes.empty(); changes--)
        bytes[random_below(bytes.size())] =
            random_below(2) ? telling[random_below(sizeof telling)] : static_cast<uint8_t>(random_below(256));
    if (random_below(3) == 0)
        bytes.resize(random_below(bytes.size() + 16));
    return bytes;
}

/// Reads all that a packet says it has; whether it is one.
static bool reads(const std::vector<uint8_t> &bytes)
{
    // A packet of its own size, so that a read beyond it is seen.
    Packet packet(1, TAG_GO, 2, bytes.data(), bytes.size());
    const std::string format = packet.get_FormatString();
    const unsigned fields = packet.get_NumDataElements();
    uint64_t sum = 0;
    for (unsigned at = 0; at < fields; at++) {
        DataElement *element = packet[at];
        uint64_t count = 0;
        if (const void *array = element->get_array(nullptr, &count)) {
            const DataType type = element->get_DataType();
            if (type == STRING_ARRAY_T || type == STRING_LRG_ARRAY_T) {
                for (uint64_t one = 0; one < count; one++)
                    sum += std::strlen(static_cast<const char *const *>(array)[one]);
            } else if (count) {
                sum += static_cast<const uint8_t *>(array)[count - 1];
            }
        } else if (element->get_DataType() == STRING_T) {
            sum += std::strlen(element->get_string());
        }
    }
    CHECK(!packet[fields] && sum < (1u << 30));
    const bool whole = !packet.has_Error();
    const sheaf_reader wire = packet.wire();
    CHECK(!whole || fields == 0 || wire.left >= fields);
    return whole && fields > 0;
}

/// With pointers that unpack() fills in, as many as any of the formats has; frees what it gives.
static int unpack(const std::vector<uint8_t> &bytes, const char *format)
{
    Packet packet(1, TAG_GO, 2, bytes.data(), bytes.size());
    uint64_t into[16] = {};
    if (packet.unpack(format, into, into + 1, into + 2, into + 3, into + 4, into + 5, into + 6, into + 7, into + 8,
                      into + 9, into + 10, into + 11, into + 12, into + 13, into + 14, into + 15))
        return -1;
    sheaf_field fields[SHEAF_FIELDS_MAX];
    const int count = sheaf_parse_format(format, fields);
    size_t at = 0;
    for (int field = 0; field < count; field++) {
        char **given = nullptr;
        std::memcpy(&given, into + at++, sizeof given);
        const bool array = fields[field].shape != SHEAF_SCALAR, string = fields[field].kind == SHEAF_STR;
        const uint64_t len = array ? into[at++] : 0;
        for (uint64_t one = 0; string && one < len; one++)
            std::free(given[one]);
        if (array || string)
            std::free(given);
    }
    return 0;
}

int main()
{
    const size_t kinds = sizeof formats / sizeof *formats;
    unsigned whole = 0, broken = 0;
    for (size_t which = 0; which < kinds; which++) {
        const std::vector<uint8_t> good = seed(which);
        CHECK(unpack(good, formats[which]) == 0 && (reads(good) || !*formats[which]));
        for (state = 1; state < 20000;) {
            const uint64_t round = state;
            const std::vector<uint8_t> bytes = forged(good);
            (reads(bytes) ? whole : broken)++;
            unpack(bytes, formats[which]);
            unpack(bytes, formats[random_below(kinds)]);
            const std::string text(bytes.begin(), bytes.end());
            sheaf_field fields[SHEAF_FIELDS_MAX];
            CHECK(sheaf_parse_format(text.c_str(), fields) <= SHEAF_FIELDS_MAX);
            state = round + 1;
        }
    }
    CHECK(whole > 1000 && broken > 1000);
    return 0;
}
