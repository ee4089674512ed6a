// Mean load of all hosts, as load_average.c, in C++.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <array>
#include <cstdlib>
#include <cstring>
#include <sheaf_filter.h>
#include <string>

namespace {

struct Loads {
    std::array<double, 3> sum{};
    std::uint64_t leaves = 0;

    bool add_text(const std::string &text) {
        const char *at = text.c_str();
        for (double &sum : this->sum) {
            char *end;
            sum += std::strtod(at, &end);
            if (end == at) return false;
            at = end;
        }
        leaves += 1;
        return true;
    }

    bool add(const sheaf_packet &packet) {
        if (packet.raw) return add_text({static_cast<const char *>(packet.data), packet.len});
        Loads more;
        if (packet.len != sizeof more) return false;
        std::memcpy(&more, packet.data, sizeof more);
        for (std::size_t i = 0; i < sum.size(); i++) sum[i] += more.sum[i];
        leaves += more.leaves;
        return true;
    }
};

} // namespace

SHEAF_FILTER_MODULE

SHEAF_FILTER(load_average)(sheaf_call *call) {
    Loads all;
    for (std::size_t i = 0; i < call->inputs_len; i++) {
        if (!all.add(call->inputs[i])) {
            sheaf_fail(call, "a load average is three numbers");
            return SHEAF_EBADMSG;
        }
    }
    const std::int32_t tag = call->inputs[0].tag;
    if (call->emit == SHEAF_EMIT_PARTIAL) return sheaf_output(call, tag, &all, sizeof all);
    for (double &sum : all.sum) sum /= static_cast<double>(all.leaves);
    return sheaf_output(call, tag, all.sum.data(), sizeof all.sum);
}
