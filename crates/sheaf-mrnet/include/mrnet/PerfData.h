// Performance data: which metric there is in which context, and what a node's measurements say.
#ifndef MRNET_PERFDATA_H
#define MRNET_PERFDATA_H

#include "mrnet/FilterIds.h"
#include "sheaf.h"

#include <cstdio>
#include <set>
#include <utility>

namespace MRN {

namespace detail {

inline const char *perfdata_metric_name(perfdata_metric_t metric)
{
    static const char *const names[] = { "bytes", "packets", "elapsed s", "cpu system %", "cpu user %",
                                         "virtual memory KB", "physical memory KB" };
    return metric < PERFDATA_MAX_MET ? names[metric] : "?";
}

inline const char *perfdata_context_name(perfdata_context_t context)
{
    static const char *const names[] = { "node", "send", "recv", "filter in", "filter out", "sync in", "sync out",
                                         "packet recv", "packet send", "packet to child", "packet to parent",
                                         "packet from parent", "packet from child", "packet in filter",
                                         "packet before filter", "packet after filter" };
    return context < PERFDATA_MAX_CTX ? names[context] : "?";
}

/// The type of a metric's values, and so the member of perfdata_t that holds them.
inline perfdata_mettype_t perfdata_type(perfdata_metric_t metric)
{
    return metric <= PERFDATA_MET_NUM_PKTS ? PERFDATA_TYPE_UINT : PERFDATA_TYPE_FLOAT;
}

/// The place in sheaf_measured where packets of a context are counted; -1 where none are.
inline int perfdata_count(perfdata_context_t context)
{
    switch (context) {
    case PERFDATA_CTX_SEND: return SHEAF_COUNT_SENT;
    case PERFDATA_CTX_RECV: return SHEAF_COUNT_RECEIVED;
    case PERFDATA_CTX_FILT_IN: return SHEAF_COUNT_FILTER_IN;
    case PERFDATA_CTX_FILT_OUT: return SHEAF_COUNT_FILTER_OUT;
    case PERFDATA_CTX_SYNCFILT_IN: return SHEAF_COUNT_SYNC_IN;
    case PERFDATA_CTX_SYNCFILT_OUT: return SHEAF_COUNT_SYNC_OUT;
    default: return -1;
    }
}

inline bool perfdata_is_filter(perfdata_context_t context)
{
    return context == PERFDATA_CTX_FILT_OUT || context == PERFDATA_CTX_PKT_FILTER;
}
inline bool perfdata_is_wait(perfdata_context_t context)
{
    return context == PERFDATA_CTX_SYNCFILT_OUT || context == PERFDATA_CTX_PKT_RECV_TO_FILTER;
}

/// Whether nodes measure it.
inline bool perfdata_exists(perfdata_metric_t metric, perfdata_context_t context)
{
    switch (metric) {
    case PERFDATA_MET_NUM_BYTES:
    case PERFDATA_MET_NUM_PKTS: return perfdata_count(context) >= 0;
    case PERFDATA_MET_ELAPSED_SEC: return perfdata_is_filter(context) || perfdata_is_wait(context);
    case PERFDATA_MET_CPU_SYS_PCT:
    case PERFDATA_MET_CPU_USR_PCT: return perfdata_is_filter(context);
    case PERFDATA_MET_MEM_VIRT_KB:
    case PERFDATA_MET_MEM_PHYS_KB: return context < PERFDATA_MAX_CTX;
    default: return false;
    }
}

inline perfdata_t perfdata_value(perfdata_metric_t metric, perfdata_context_t context, const sheaf_measured &node)
{
    perfdata_t value;
    value.u = 0;
    const double cpu_s = metric == PERFDATA_MET_CPU_USR_PCT ? node.user_s : node.system_s;
    switch (metric) {
    case PERFDATA_MET_NUM_BYTES: value.u = node.bytes[perfdata_count(context)]; break;
    case PERFDATA_MET_NUM_PKTS: value.u = node.packets[perfdata_count(context)]; break;
    case PERFDATA_MET_ELAPSED_SEC: value.d = perfdata_is_wait(context) ? node.waited_s : node.filter_s; break;
    case PERFDATA_MET_MEM_VIRT_KB: value.d = static_cast<double>(node.virtual_kb); break;
    case PERFDATA_MET_MEM_PHYS_KB: value.d = static_cast<double>(node.resident_kb); break;
    default: value.d = node.filter_s > 0 ? 100 * cpu_s / node.filter_s : 0; break;
    }
    return value;
}

template <class T> void perfdata_fold(T &into, T value, FilterId filter)
{
    if (filter == TFILTER_MIN)
        into = value < into ? value : into;
    else if (filter == TFILTER_MAX)
        into = into < value ? value : into;
    else
        into += value;
}

/// One value for all nodes, under the number of nodes, negated.
inline bool perfdata_aggregate(rank_perfdata_map &results, perfdata_mettype_t type, FilterId filter)
{
    if (filter < TFILTER_SUM || filter > TFILTER_MAX || results.empty())
        return false;
    const int count = static_cast<int>(results.size());
    perfdata_t all = results.begin()->second[0];
    for (auto at = std::next(results.begin()); at != results.end(); ++at) {
        if (type == PERFDATA_TYPE_UINT)
            perfdata_fold(all.u, at->second[0].u, filter);
        else
            perfdata_fold(all.d, at->second[0].d, filter);
    }
    if (filter == TFILTER_AVG && type == PERFDATA_TYPE_UINT)
        all.u /= static_cast<uint64_t>(count);
    else if (filter == TFILTER_AVG)
        all.d /= count;
    results.clear();
    results[-count].push_back(all);
    return true;
}

/// What is enabled of one stream, or of all.
class PerfData {
public:
    bool enable(perfdata_metric_t metric, perfdata_context_t context)
    {
        return perfdata_exists(metric, context) && (_enabled.insert(std::make_pair(metric, context)), true);
    }
    bool disable(perfdata_metric_t metric, perfdata_context_t context)
    {
        return _enabled.erase(std::make_pair(metric, context)) != 0;
    }
    bool collect(sheaf_net *net, unsigned int id, rank_perfdata_map &results, perfdata_metric_t metric,
                 perfdata_context_t context, FilterId filter) const
    {
        const uint32_t timeout_ms = 10000;
        results.clear();
        Asked asked = { metric, context, &results };
        if (!net || !_enabled.count(std::make_pair(metric, context))
            || sheaf_stream_measure(net, id, timeout_ms, &PerfData::take, &asked))
            return false;
        return filter == TFILTER_ARRAY_CONCAT || perfdata_aggregate(results, perfdata_type(metric), filter);
    }
    void print(sheaf_net *net, unsigned int id, perfdata_metric_t metric, perfdata_context_t context) const
    {
        rank_perfdata_map results;
        if (!collect(net, id, results, metric, context, TFILTER_ARRAY_CONCAT))
            return;
        for (const auto &one : results) {
            const perfdata_t &value = one.second[0];
            const double number = perfdata_type(metric) == PERFDATA_TYPE_UINT ? static_cast<double>(value.u) : value.d;
            std::printf("PERFDATA rank %d, %s, %s: %.9g\n", one.first, perfdata_context_name(context),
                        perfdata_metric_name(metric), number);
        }
    }

private:
    struct Asked {
        perfdata_metric_t metric;
        perfdata_context_t context;
        rank_perfdata_map *results;
    };
    static void take(void *into, const struct sheaf_measured *node)
    {
        Asked *asked = static_cast<Asked *>(into);
        (*asked->results)[static_cast<int>(node->rank)].push_back(perfdata_value(asked->metric, asked->context, *node));
    }

    std::set<std::pair<perfdata_metric_t, perfdata_context_t> > _enabled;
};

} // namespace detail

} // namespace MRN

#endif
