// Which leaves hold the same bytes. A leaf sends its index (32 bits, little-endian) and its bytes;
// what goes up is a list of classes, ordered by their bytes:
//
//     leaves (32 bits) | length (32 bits) | bytes | index of each leaf, ascending (32 bits each)
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <sheaf_filter.h>
#include <string>
#include <vector>

namespace {

using Classes = std::map<std::string, std::vector<std::uint32_t>>;

class Reader {
  public:
    explicit Reader(const sheaf_packet &packet)
        : at_(static_cast<const char *>(packet.data)), left_(packet.len) {}

    bool done() const { return left_ == 0; }
    std::size_t left() const { return left_; }

    bool number(std::uint32_t &out) {
        if (left_ < sizeof out) return false;
        std::memcpy(&out, at_, sizeof out);
        skip(sizeof out);
        return true;
    }

    bool bytes(std::size_t len, std::string &out) {
        if (left_ < len) return false;
        out.assign(at_, len);
        skip(len);
        return true;
    }

  private:
    void skip(std::size_t len) {
        at_ += len;
        left_ -= len;
    }

    const char *at_;
    std::size_t left_;
};

bool add(const sheaf_packet &packet, Classes &all) {
    Reader reader(packet);
    std::string bytes;
    std::uint32_t leaf, leaves, length;
    if (packet.raw) {
        if (!reader.number(leaf) || !reader.bytes(reader.left(), bytes)) return false;
        all[bytes].push_back(leaf);
        return true;
    }
    while (!reader.done()) {
        if (!reader.number(leaves) || !reader.number(length) || !reader.bytes(length, bytes)) return false;
        auto &members = all[bytes];
        for (std::uint32_t i = 0; i < leaves; i++) {
            if (!reader.number(leaf)) return false;
            members.push_back(leaf);
        }
    }
    return true;
}

void put(std::string &out, std::size_t number) {
    const auto word = static_cast<std::uint32_t>(number);
    out.append(reinterpret_cast<const char *>(&word), sizeof word);
}

} // namespace

SHEAF_FILTER_MODULE

SHEAF_FILTER(eq_class)(sheaf_call *call) {
    Classes all;
    for (std::size_t i = 0; i < call->inputs_len; i++) {
        if (!add(call->inputs[i], all)) {
            sheaf_fail(call, "a leaf sends its index and its bytes");
            return SHEAF_EBADMSG;
        }
    }
    std::string out;
    for (auto &[bytes, leaves] : all) {
        std::sort(leaves.begin(), leaves.end());
        put(out, leaves.size());
        put(out, bytes.size());
        out += bytes;
        for (std::uint32_t leaf : leaves) put(out, leaf);
    }
    return sheaf_output(call, call->inputs[0].tag, out.data(), out.size());
}
