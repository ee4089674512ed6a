// Packets between the front end and some back ends.
#ifndef MRNET_STREAM_H
#define MRNET_STREAM_H

#include "mrnet/FilterIds.h"
#include "mrnet/Packet.h"
#include "mrnet/PerfData.h"

#include <atomic>
#include <set>

namespace MRN {

/// A stream: what the front end sends reaches every member, what members send is synchronised and
/// transformed on its way up. Deleting it closes it.
class Stream : public Error {
public:
    ~Stream();

    int send(int tag, const char *format, ...)
    {
        sheaf_args args;
        va_start(args.list, format);
        const int done = send_args(tag, format, args);
        va_end(args.list);
        return done;
    }
    int send(const char *format, va_list list, int tag)
    {
        sheaf_args args;
        va_copy(args.list, list);
        const int done = send_args(tag, format, args);
        va_end(args.list);
        return done;
    }
    /// From pointers: to each scalar; of an array, to it and to its length.
    int send(int tag, const void **data, const char *format)
    {
        sheaf_buf buf = sheaf_buf();
        int done = sheaf_pack_pointers(&buf, format, data);
        if (done)
            error(ERR_FORMATSTR);
        else
            done = send_bytes(tag, buf.data, buf.len, nullptr, 0);
        sheaf_buf_free(&buf);
        return done;
    }
    /// To the members that the packet names, or to all.
    int send(PacketPtr &packet)
    {
        if (!packet) {
            error(ERR_PACKING, "there is no packet");
            return -1;
        }
        const sheaf_reader wire = packet->wire();
        const std::vector<Rank> &to = packet->get_Destinations();
        return send_bytes(packet->get_Tag(), wire.at, wire.left, to.data(), to.size());
    }

    /// 1 with a packet, 0 when none is there (and it is not to wait), -1 when none can come.
    int recv(int *tag, PacketPtr &packet, bool blocking = true);

    /// Waits until what was sent has left this process.
    int flush() const;

    unsigned int get_Id() const { return _id; }
    const std::set<Rank> &get_EndPoints() const { return _members; }
    unsigned int size() const { return static_cast<unsigned>(_members.size()); }
    bool has_Data() const;
    bool is_Closed() const;

    /// A descriptor that is readable when packets have come.
    int get_DataNotificationFd();
    void clear_DataNotificationFd();
    void close_DataNotificationFd();

    /// Gives a filter of this stream its parameters.
    int set_FilterParameters(FilterType type, const char *format, ...)
    {
        va_list list;
        va_start(list, format);
        const int done = set_FilterParameters(format, list, type);
        va_end(list);
        return done;
    }
    int set_FilterParameters(const char *format, va_list list, FilterType type);
    /// Of an upward transformation, or of a downward one.
    int set_FilterParameters(bool upstream, const char *format, ...)
    {
        va_list list;
        va_start(list, format);
        const int done = set_FilterParameters(format, list, upstream ? FILTER_UPSTREAM_TRANS : FILTER_DOWNSTREAM_TRANS);
        va_end(list);
        return done;
    }

    /// Lets every node of the stream measure a metric in a context from now on; false where there is
    /// nothing to measure. (All metrics of a stream count from the first call.)
    bool enable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context);
    bool disable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context);
    /// What nodes have measured, by rank; with TFILTER_SUM, AVG, MIN or MAX one value for all nodes.
    bool collect_PerformanceData(rank_perfdata_map &results, perfdata_metric_t metric, perfdata_context_t context,
                                 int filter = TFILTER_ARRAY_CONCAT);
    void print_PerformanceData(perfdata_metric_t metric, perfdata_context_t context);

    FilterId get_UpFilter() const { return _up; }
    FilterId get_SyncFilter() const { return _sync; }
    FilterId get_DownFilter() const { return _down; }

private:
    friend class Network;
    Stream(Network *network, unsigned int id, FilterId up, FilterId sync, FilterId down)
        : _network(network), _id(id), _up(up), _sync(sync), _down(down), _sync_ms(0), _measured(false), _opened(false)
    {
    }
    Stream(const Stream &);
    Stream &operator=(const Stream &);

    int send_args(int tag, const char *format, sheaf_args &args)
    {
        sheaf_buf buf;
        uint8_t lent[SHEAF_LENT_BYTES];
        sheaf_buf_lend(&buf, lent, sizeof lent);
        int done = sheaf_pack_args(&buf, format, &args);
        if (done)
            error(ERR_FORMATSTR, std::string("the format string is malformed: ") + (format ? format : ""));
        else
            done = send_bytes(tag, buf.data, buf.len, nullptr, 0);
        sheaf_buf_free(&buf);
        return done;
    }
    int send_bytes(int tag, const uint8_t *data, size_t len, const Rank *ranks, size_t ranks_len);
    /// Opens the stream in the tree, when it is first used.
    bool open() const;
    int set_timeout(const sheaf_buf &buf);
    int set_params(const sheaf_buf &buf, bool down);
    /// Lets its nodes measure.
    bool measure();

    Network *_network;
    unsigned int _id;
    FilterId _up, _sync, _down;
    std::set<Rank> _members;
    /// Filters as the tree knows them.
    std::string _up_names, _down_names;
    std::vector<uint8_t> _up_params, _down_params;
    uint32_t _sync_ms;
    bool _measured;
    detail::PerfData _perf;
    mutable std::mutex _mutex;
    mutable std::atomic<bool> _opened;
};

} // namespace MRN

#endif
