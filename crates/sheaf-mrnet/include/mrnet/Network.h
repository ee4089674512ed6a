// A running tree, seen from its front end or from one of its back ends.
#ifndef MRNET_NETWORK_H
#define MRNET_NETWORK_H

#include "mrnet/Communicator.h"
#include "mrnet/Event.h"
#include "mrnet/NetworkTopology.h"
#include "mrnet/Stream.h"

#include <fstream>
#include <limits.h>
#include <list>
#include <sstream>
#include <unistd.h>

namespace MRN {

/// One end of a tree. Deleting the front end's ends the session.
class Network : public Error {
public:
    /// Starts a tree: `topology` names a topology file, or is the text of one with `in_memory`.
    /// `argv` are the back ends' arguments, without their name, ending in null. The result may
    /// have an error; it must be deleted all the same.
    static Network *CreateNetworkFE(const char *topology, const char *back_end, const char **argv,
                                    const std::map<std::string, std::string> *attributes = nullptr,
                                    bool rank_back_ends = true, bool in_memory = false)
    {
        (void)rank_back_ends;
        Network *network = new Network();
        network->create(topology, back_end, argv, attributes, in_memory);
        return network;
    }
    /// Joins the tree, in a back end. The last five arguments say where (parent's host, port and
    /// rank, own host and rank) unless the tree has started this process.
    static Network *CreateNetworkBE(int argc, char **argv)
    {
        Network *network = new Network();
        network->join(argc, argv);
        return network;
    }
    /// Inner nodes run a program of their own (mrnet_commnode); this gives an error.
    static Network *CreateNetworkIN(int, char **)
    {
        Network *network = new Network();
        network->error(ERR_INTERNAL, "inner nodes run mrnet_commnode");
        return network;
    }

    virtual ~Network()
    {
        if (_net)
            sheaf_net_shut_down(_net);
        std::map<unsigned int, Stream *> streams;
        {
            std::lock_guard<std::mutex> guard(_mutex);
            streams.swap(_streams);
        }
        for (auto &entry : streams)
            delete entry.second;
        _topology.reset();
        if (_net)
            sheaf_net_free(_net);
    }

    void print_error(const char *text) const { perror(text); }

    NetworkTopology *get_NetworkTopology() const { return _topology.get(); }
    bool is_ShutDown() const { return !_net || sheaf_net_is_over(_net); }
    void waitfor_ShutDown() const
    {
        if (_net)
            sheaf_net_wait_over(_net, -1);
    }
    /// Ends the session, or leaves it.
    void shutdown_Network()
    {
        if (_net)
            sheaf_net_shut_down(_net);
    }

    std::string get_LocalHostName() const
    {
        const NetworkTopology::Node *node = local();
        if (node)
            return node->get_HostName();
        char name[256] = "";
        return gethostname(name, sizeof name - 1) ? std::string() : std::string(name);
    }
    Port get_LocalPort() const { return local() ? local()->get_Port() : UnknownPort; }
    Rank get_LocalRank() const { return _net ? sheaf_net_rank(_net) : UnknownRank; }
    bool is_LocalNodeFrontEnd() const { return _front; }
    bool is_LocalNodeBackEnd() const { return !_front; }
    bool is_LocalNodeInternal() const { return false; }
    bool is_LocalNodeParent() const { return _front; }
    bool is_LocalNodeChild() const { return !_front; }

    /// All back ends.
    Communicator *get_BroadcastCommunicator() const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        if (!_everyone) {
            _everyone.reset(new Communicator(const_cast<Network *>(this)));
        }
        std::set<NetworkTopology::Node *> nodes;
        if (_topology)
            _topology->get_BackEndNodes(nodes);
        for (const NetworkTopology::Node *node : nodes)
            _everyone->_nodes.insert(end_point(node->get_Rank()));
        return _everyone.get();
    }
    Communicator *new_Communicator() { return keep(new Communicator(this)); }
    Communicator *new_Communicator(Communicator &other)
    {
        Communicator *made = new_Communicator();
        made->_nodes = other._nodes;
        return made;
    }
    /// Null when one of the ranks is no back end.
    Communicator *new_Communicator(const std::set<Rank> &ranks)
    {
        Communicator *made = new_Communicator();
        for (Rank rank : ranks)
            if (!made->add_EndPoint(rank))
                return nullptr;
        return made;
    }
    Communicator *new_Communicator(std::set<CommunicationNode *> &nodes)
    {
        Communicator *made = new_Communicator();
        for (CommunicationNode *node : nodes)
            made->add_EndPoint(node);
        return made;
    }
    /// The back end of that rank; null when there is none.
    CommunicationNode *get_EndPoint(Rank rank) const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        return end_point(rank);
    }

    /// Sends a filter of a shared object to every node; its id, or -1.
    int load_FilterFunc(const char *so_file, const char *function)
    {
        char name[SHEAF_FILTER_NAME_MAX];
        const std::string path = find_library(so_file ? so_file : "");
        if (!_net || !function || sheaf_filter_load(_net, path.c_str(), function, name, sizeof name)) {
            error_of_library();
            return -1;
        }
        std::lock_guard<std::mutex> guard(_mutex);
        _filters.push_back(name);
        return detail::first_loaded_filter + static_cast<int>(_filters.size()) - 1;
    }
    /// How many were loaded; their ids are appended to `ids`.
    int load_FilterFuncs(const char *so_file, const std::vector<const char *> &functions, std::vector<int> &ids)
    {
        int loaded = 0;
        for (const char *function : functions) {
            ids.push_back(load_FilterFunc(so_file, function));
            loaded += ids.back() >= 0;
        }
        return loaded;
    }

    /// With a filter for each node: "id => rank; id => *;".
    Stream *new_Stream(Communicator *members, std::string up, std::string sync, std::string down)
    {
        int sync_id = SFILTER_WAITFORALL;
        const size_t arrow = sync.find("=>");
        const std::string first = sync.substr(0, arrow);
        if (!first.empty() && first.find_first_not_of(" \t;") != std::string::npos)
            sync_id = std::atoi(first.c_str());
        std::string up_names, down_names;
        if (!names_of(up, up_names) || !names_of(down, down_names)) {
            error(ERR_INTERNAL, "an assignment is \"id => rank; id => *;\" with ids of filters");
            return nullptr;
        }
        Stream *stream = new_Stream(members, TFILTER_NULL, sync_id, TFILTER_NULL);
        if (stream) {
            stream->_up_names = up_names;
            stream->_down_names = down_names;
        }
        return stream;
    }
    /// Null for members or filters that there are not.
    Stream *new_Stream(Communicator *members, int up = TFILTER_NULL, int sync = SFILTER_WAITFORALL,
                       int down = TFILTER_NULL)
    {
        if (!_front || !_net || !members || members->size() == 0) {
            error(ERR_INTERNAL, "a stream needs a front end and members");
            return nullptr;
        }
        if (!is_filter(up) || !is_filter(down) || sync < SFILTER_DONTWAIT || sync > SFILTER_TIMEOUT) {
            error(ERR_INTERNAL, "there is no such filter");
            return nullptr;
        }
        const unsigned int id = sheaf_stream_new(_net);
        Stream *stream = new Stream(this, id, up, sync, down);
        stream->_members = members->get_Ranks();
        stream->_up_names = name_of(up);
        stream->_down_names = name_of(down);
        std::lock_guard<std::mutex> guard(_mutex);
        stream->_measured = _measured;
        _streams[id] = stream;
        return stream;
    }

    /// Null for an id that no stream has here (yet). A back end's rank is the id of its own stream.
    Stream *get_Stream(unsigned int id) const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        return known_stream(id);
    }

    /// The next packet of any stream: 1 with it, 0 when none is there (and it is not to wait), -1
    /// when none can come.
    int recv(int *tag, PacketPtr &packet, Stream **stream, bool blocking = true)
    {
        for (;;) {
            const int got = take(SHEAF_ANY_STREAM, tag, packet, blocking);
            if (got != 1)
                return got;
            Stream *from = get_Stream(packet->get_StreamId());
            if (stream)
                *stream = from;
            // A packet of a stream that has been deleted meanwhile is nobody's.
            if (from || !stream)
                return got;
        }
    }

    /// To one back end, on the stream that has its rank for an id.
    int send(Rank to, int tag, const char *format, ...)
    {
        sheaf_args args;
        sheaf_buf buf;
        uint8_t lent[SHEAF_LENT_BYTES];
        sheaf_buf_lend(&buf, lent, sizeof lent);
        va_start(args.list, format);
        int done = sheaf_pack_args(&buf, format, &args);
        va_end(args.list);
        if (done)
            error(ERR_FORMATSTR);
        else
            done = deliver(to, tag, buf.data, buf.len, nullptr, 0);
        sheaf_buf_free(&buf);
        return done;
    }
    int send(Rank to, PacketPtr &packet)
    {
        if (!packet)
            return -1;
        const sheaf_reader wire = packet->wire();
        return deliver(to, packet->get_Tag(), wire.at, wire.left, nullptr, 0);
    }
    int flush() const
    {
        if (!_net || sheaf_net_flush(_net)) {
            error_of_library();
            return -1;
        }
        return 0;
    }

    // Events.

    void clear_Events()
    {
        if (_net)
            sheaf_event_count(_net, 1);
    }
    unsigned int num_EventsPending() { return _net ? static_cast<unsigned>(sheaf_event_count(_net, 0)) : 0; }
    /// The oldest event, which the caller deletes; null when there is none.
    Event *next_Event()
    {
        struct sheaf_event event;
        return _net && sheaf_event_next(_net, &event) ? new Event(make_event(event)) : nullptr;
    }
    /// Calls `function` for events of a type (or all types) of a class; once only, if so wished.
    bool register_EventCallback(EventClass event_class, EventType type, evt_cb_func function, void *data,
                                bool once = false)
    {
        if (!_net || !function)
            return false;
        std::lock_guard<std::mutex> guard(_callback_mutex);
        if (!_hooked && sheaf_event_hook(_net, &Network::hook, this))
            return false;
        _hooked = true;
        _callbacks.push_back(Callback{ event_class, type, function, data, once });
        return true;
    }
    bool remove_EventCallback(evt_cb_func function, EventClass event_class, EventType type)
    {
        return remove_callbacks(function, event_class, type);
    }
    bool remove_EventCallbacks(EventClass event_class, EventType type = Event::EVENT_TYPE_ALL)
    {
        return remove_callbacks(nullptr, event_class, type);
    }
    /// A descriptor that is readable when something of a class has happened.
    int get_EventNotificationFd(EventClass event_class) { return _net ? sheaf_event_fd(_net, event_class) : -1; }
    void clear_EventNotificationFd(EventClass event_class)
    {
        if (_net)
            sheaf_event_fd_clear(_net, event_class, 0);
    }
    void close_EventNotificationFd(EventClass event_class)
    {
        if (_net)
            sheaf_event_fd_clear(_net, event_class, 1);
    }

    // Performance data, of all streams together.

    bool enable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
    {
        std::vector<Stream *> streams;
        {
            std::lock_guard<std::mutex> guard(_mutex);
            if (!_front || !_net || !_perf.enable(metric, context))
                return false;
            _measured = true;
            for (const auto &entry : _streams)
                streams.push_back(entry.second);
        }
        bool done = true;
        for (Stream *stream : streams)
            done &= stream->measure();
        return done;
    }
    bool disable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
    {
        std::lock_guard<std::mutex> guard(_mutex);
        return _perf.disable(metric, context);
    }
    bool collect_PerformanceData(rank_perfdata_map &results, perfdata_metric_t metric, perfdata_context_t context,
                                 int filter = TFILTER_ARRAY_CONCAT)
    {
        return perf().collect(_net, SHEAF_ANY_STREAM, results, metric, context, filter);
    }
    void print_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
    {
        perf().print(_net, SHEAF_ANY_STREAM, metric, context);
    }

    /// The tree looks after itself in any case.
    bool set_FailureRecovery(bool) { return _net != nullptr; }
    /// Back ends end with the session in any case.
    void set_TerminateBackEnds(bool) {}

private:
    friend class Stream;
    friend class Communicator;
    struct Callback {
        EventClass event_class;
        EventType type;
        evt_cb_func function;
        void *data;
        bool once;
    };

    Network() : _net(nullptr), _front(false), _hooked(false), _measured(false) {}
    Network(const Network &);
    Network &operator=(const Network &);

    detail::PerfData perf() const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        return _perf;
    }

    /// A name without a directory is looked for where the dynamic linker would.
    static std::string find_library(const std::string &name)
    {
        const char *all = name.find('/') == std::string::npos ? std::getenv("LD_LIBRARY_PATH") : nullptr;
        std::istringstream directories(all ? all : "");
        std::string directory;
        while (access(name.c_str(), R_OK) && std::getline(directories, directory, ':')) {
            const std::string path = directory + "/" + name;
            if (!access(path.c_str(), R_OK))
                return path;
        }
        return name;
    }

    /// An attribute of the caller's, or one of these environment variables.
    static std::string setting(const std::map<std::string, std::string> *attributes, const char *name)
    {
        const std::string names[] = { std::string("MRNET_") + name, std::string("MRN_") + name, name };
        for (const std::string &one : names) {
            if (attributes && attributes->count(one))
                return attributes->find(one)->second;
        }
        for (const std::string &one : names) {
            // Only names that say whose they are.
            const bool bare = &one == &names[2] && one.compare(0, 6, "XPLAT_") != 0;
            const char *value = bare ? nullptr : std::getenv(one.c_str());
            if (value && *value)
                return value;
        }
        return std::string();
    }

    void create(const char *topology, const char *back_end, const char **argv,
                const std::map<std::string, std::string> *attributes, bool in_memory)
    {
        _front = true;
        std::string text = topology ? topology : "";
        if (!in_memory) {
            std::ifstream file(text.c_str());
            if (!file) {
                error(ERR_SYSTEM, "cannot read the topology file " + text);
                return;
            }
            std::ostringstream all;
            all << file.rdbuf();
            text = all.str();
        }
        const std::string inner = setting(attributes, "COMM_PATH"), wait = setting(attributes, "STARTUP_TIMEOUT");
        const long seconds = wait.empty() ? 60 : std::atol(wait.c_str());
        struct sheaf_create create = sheaf_create();
        create.topology = text.c_str();
        create.back_end = back_end;
        create.args = argv;
        create.inner = inner.empty() ? nullptr : inner.c_str();
        const std::string shell = setting(attributes, "XPLAT_RSH"), words = setting(attributes, "XPLAT_RSH_ARGS");
        create.remote_shell = shell.empty() ? nullptr : shell.c_str();
        create.remote_shell_args = words.empty() ? nullptr : words.c_str();
        create.startup_timeout_ms = seconds > 0 ? seconds * 1000L : 60000;
        begin(sheaf_net_create(&create));
    }

    void join(int argc, char **argv)
    {
        begin(sheaf_net_join_args(argc, argv));
    }

    void begin(sheaf_net *net)
    {
        _net = net;
        if (net)
            _topology.reset(new NetworkTopology(net));
        else
            error_of_library();
    }

    NetworkTopology::Node *local() const { return _topology ? _topology->find_Node(get_LocalRank()) : nullptr; }

    std::string name_of(int id) const
    {
        if (detail::filter_name(id))
            return detail::filter_name(id);
        std::lock_guard<std::mutex> guard(_mutex);
        const size_t at = static_cast<size_t>(id - detail::first_loaded_filter);
        return id >= detail::first_loaded_filter && at < _filters.size() ? _filters[at] : std::string();
    }
    bool is_filter(int id) const { return !name_of(id).empty(); }

    /// The assignment with names in place of ids.
    bool names_of(const std::string &ids, std::string &names) const
    {
        std::istringstream statements(ids);
        std::string statement;
        while (std::getline(statements, statement, ';')) {
            if (statement.find_first_not_of(" \t\n") == std::string::npos)
                continue;
            const size_t arrow = statement.find("=>");
            const std::string name = name_of(std::atoi(statement.c_str()));
            if (arrow == std::string::npos || name.empty())
                return false;
            names += name + " " + statement.substr(arrow) + "; ";
        }
        return true;
    }

    Communicator *keep(Communicator *made)
    {
        std::lock_guard<std::mutex> guard(_mutex);
        _communicators.push_back(std::unique_ptr<Communicator>(made));
        return made;
    }

    CommunicationNode *end_point(Rank rank) const
    {
        std::unique_ptr<CommunicationNode> &slot = _end_points[rank];
        if (!slot) {
            const NetworkTopology::Node *node = _topology ? _topology->find_Node(rank) : nullptr;
            if (!node || !node->is_BackEnd())
                return nullptr;
            slot.reset(new CommunicationNode(node->get_HostName(), node->get_Port(), rank));
        }
        return slot.get();
    }

    static void learn(void *into, const uint32_t *members, size_t members_len, const uint8_t *about, size_t len)
    {
        Stream *stream = static_cast<Stream *>(into);
        stream->_members.insert(members, members + members_len);
        int32_t ids[3];
        if (len >= sizeof ids) {
            std::memcpy(ids, about, sizeof ids);
            stream->_up = ids[0];
            stream->_sync = ids[1];
            stream->_down = ids[2];
        }
    }

    Stream *known_stream(unsigned int id) const
    {
        auto found = _streams.find(id);
        if (found != _streams.end())
            return found->second;
        if (!_net)
            return nullptr;
        const bool own = _front && _topology->find_Node(id) && _topology->find_Node(id)->is_BackEnd();
        if (_front ? !own : !sheaf_stream_is_open(_net, id) && !sheaf_has_packet(_net, id))
            return nullptr;
        Network *self = const_cast<Network *>(this);
        Stream *stream = new Stream(self, id, TFILTER_NULL, SFILTER_DONTWAIT, TFILTER_NULL);
        stream->_opened = true;
        if (own)
            stream->_members.insert(id);
        else
            sheaf_stream_about(_net, id, &Network::learn, stream);
        self->_streams[id] = stream;
        return stream;
    }

    int take(unsigned int id, int *tag, PacketPtr &packet, bool blocking)
    {
        sheaf_message *received = nullptr;
        const int got = _net ? sheaf_recv(_net, id, blocking ? -1 : 0, &received) : -1;
        if (got == 1) {
            packet = std::make_shared<Packet>(received);
            if (tag)
                *tag = packet->get_Tag();
        } else if (got < 0) {
            error_of_library();
        }
        return got;
    }

    int deliver(unsigned int id, int tag, const uint8_t *data, size_t len, const Rank *ranks, size_t ranks_len)
    {
        if (!_net || sheaf_stream_send(_net, id, tag, data, len, ranks, ranks_len)) {
            error_of_library();
            return -1;
        }
        return 0;
    }

    static Event make_event(const struct sheaf_event &event)
    {
        const EventType type = static_cast<EventType>(event.kind);
        EventData *data;
        switch (event.event_class) {
        case SHEAF_EVENT_DATA:
            data = new DataEvent::DataEventData(event.stream);
            return Event(Event::DATA_EVENT, type, data);
        case SHEAF_EVENT_TOPOLOGY:
            data = new TopologyEvent::TopolEventData(event.rank, event.parent);
            return Event(Event::TOPOLOGY_EVENT, type, data);
        default:
            data = new ErrorEvent::ErrorEventData(event.rank, event.text ? event.text : "");
            return Event(Event::ERROR_EVENT, type, data);
        }
    }

    static void hook(void *context, const struct sheaf_event *event)
    {
        Network *self = static_cast<Network *>(context);
        Event made = make_event(*event);
        std::vector<Callback> due;
        {
            std::lock_guard<std::mutex> guard(self->_callback_mutex);
            for (auto at = self->_callbacks.begin(); at != self->_callbacks.end();) {
                const bool fits = at->event_class == made.get_Class()
                    && (at->type == Event::EVENT_TYPE_ALL || at->type == made.get_Type());
                if (fits)
                    due.push_back(*at);
                at = fits && at->once ? self->_callbacks.erase(at) : std::next(at);
            }
        }
        for (const Callback &callback : due)
            callback.function(&made, callback.data);
    }

    bool remove_callbacks(evt_cb_func function, EventClass event_class, EventType type)
    {
        std::lock_guard<std::mutex> guard(_callback_mutex);
        const size_t before = _callbacks.size();
        _callbacks.remove_if([&](const Callback &one) {
            return one.event_class == event_class && (!function || one.function == function)
                && (type == Event::EVENT_TYPE_ALL || one.type == type);
        });
        return _callbacks.size() != before;
    }

    void forget(unsigned int id, const Stream *stream)
    {
        {
            std::lock_guard<std::mutex> guard(_mutex);
            auto found = _streams.find(id);
            if (found != _streams.end() && found->second == stream)
                _streams.erase(found);
        }
        if (_net && stream->_opened && !sheaf_net_is_over(_net))
            sheaf_stream_close(_net, id);
    }

    sheaf_net *_net;
    bool _front, _hooked;
    std::unique_ptr<NetworkTopology> _topology;
    mutable std::mutex _mutex;
    std::mutex _callback_mutex;
    mutable std::map<unsigned int, Stream *> _streams;
    mutable std::map<Rank, std::unique_ptr<CommunicationNode> > _end_points;
    mutable std::unique_ptr<Communicator> _everyone;
    /// Names of the filters that were loaded.
    std::vector<std::string> _filters;
    std::list<std::unique_ptr<Communicator> > _communicators;
    std::list<Callback> _callbacks;
    /// Streams that are opened from now on are measured.
    bool _measured;
    detail::PerfData _perf;
};

inline bool Communicator::add_EndPoint(Rank rank)
{
    CommunicationNode *node = _network->get_EndPoint(rank);
    if (!node)
        error(ERR_INTERNAL, "there is no back end of that rank");
    return node && (_nodes.insert(node), true);
}

inline Stream::~Stream() { _network->forget(_id, this); }

inline bool Stream::open() const
{
    if (_opened)
        return true;
    std::lock_guard<std::mutex> guard(_mutex);
    if (_opened)
        return true;
    const std::vector<Rank> members(_members.begin(), _members.end());
    const int32_t ids[3] = { _up, _sync, _down };
    struct sheaf_open open = sheaf_open();
    open.members = members.data();
    open.members_len = members.size();
    open.filter = _up_names.c_str();
    open.params = _up_params.data();
    open.params_len = _up_params.size();
    open.down = _down_names.c_str();
    open.down_params = _down_params.data();
    open.down_params_len = _down_params.size();
    open.measured = _measured;
    open.sync = _sync == SFILTER_DONTWAIT ? SHEAF_DONT_WAIT : _sync == SFILTER_TIMEOUT ? SHEAF_TIME_OUT : SHEAF_WAIT_FOR_ALL;
    open.sync_ms = _sync_ms;
    open.about = reinterpret_cast<const uint8_t *>(ids);
    open.about_len = sizeof ids;
    if (sheaf_stream_open(_network->_net, _id, &open)) {
        error_of_library();
        return false;
    }
    _opened = true;
    return true;
}

inline int Stream::send_bytes(int tag, const uint8_t *data, size_t len, const Rank *ranks, size_t ranks_len)
{
    if (!open())
        return -1;
    const int done = _network->deliver(_id, tag, data, len, ranks, ranks_len);
    if (done)
        error_of_library();
    return done;
}

inline int Stream::recv(int *tag, PacketPtr &packet, bool blocking)
{
    return open() ? _network->take(_id, tag, packet, blocking) : -1;
}

inline int Stream::flush() const { return open() ? _network->flush() : -1; }

inline bool Stream::has_Data() const { return sheaf_has_packet(_network->_net, _id) != 0; }

inline bool Stream::is_Closed() const
{
    return _network->is_ShutDown() || (_opened && !sheaf_stream_is_open(_network->_net, _id));
}

inline int Stream::get_DataNotificationFd() { return open() ? sheaf_stream_fd(_network->_net, _id) : -1; }
inline void Stream::clear_DataNotificationFd() { sheaf_stream_fd_clear(_network->_net, _id, 0); }
inline void Stream::close_DataNotificationFd() { sheaf_stream_fd_clear(_network->_net, _id, 1); }

inline bool Stream::measure()
{
    bool in_use;
    {
        std::lock_guard<std::mutex> guard(_mutex);
        if (_measured)
            return true;
        _measured = true;
        in_use = _opened.exchange(false);
    }
    return !in_use || open();
}

inline bool Stream::enable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
{
    {
        std::lock_guard<std::mutex> guard(_mutex);
        if (!_network->_front || !_perf.enable(metric, context))
            return false;
    }
    return measure();
}

inline bool Stream::disable_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
{
    std::lock_guard<std::mutex> guard(_mutex);
    return _perf.disable(metric, context);
}

inline bool Stream::collect_PerformanceData(rank_perfdata_map &results, perfdata_metric_t metric,
                                            perfdata_context_t context, int filter)
{
    if (!open())
        return false;
    std::unique_lock<std::mutex> guard(_mutex);
    const detail::PerfData perf = _perf;
    guard.unlock();
    return perf.collect(_network->_net, _id, results, metric, context, filter);
}

inline void Stream::print_PerformanceData(perfdata_metric_t metric, perfdata_context_t context)
{
    if (!open())
        return;
    std::unique_lock<std::mutex> guard(_mutex);
    const detail::PerfData perf = _perf;
    guard.unlock();
    perf.print(_network->_net, _id, metric, context);
}

inline int Stream::set_FilterParameters(const char *format, va_list list, FilterType type)
{
    sheaf_args args;
    va_copy(args.list, list);
    sheaf_buf buf = sheaf_buf();
    int done = sheaf_pack_args(&buf, format, &args);
    va_end(args.list);
    if (done)
        error(ERR_FORMATSTR);
    else if (type == FILTER_UPSTREAM_SYNC)
        done = set_timeout(buf);
    else
        done = set_params(buf, type == FILTER_DOWNSTREAM_TRANS);
    sheaf_buf_free(&buf);
    return done;
}

inline int Stream::set_timeout(const sheaf_buf &buf)
{
    Packet packet(_id, 0, UnknownRank, buf.data, buf.len);
    uint32_t ms = 0;
    int32_t as_int = 0;
    if (packet.unpack("%ud", &ms) && (packet.unpack("%d", &as_int) || as_int < 0)) {
        error(ERR_FORMATSTR, "a time-out is a number of milliseconds, %ud");
        return -1;
    }
    std::unique_lock<std::mutex> guard(_mutex);
    _sync_ms = ms ? ms : static_cast<uint32_t>(as_int);
    const bool in_use = _opened.exchange(false);
    guard.unlock();
    return !in_use || open() ? 0 : -1;
}

inline int Stream::set_params(const sheaf_buf &buf, bool down)
{
    {
        std::lock_guard<std::mutex> guard(_mutex);
        (down ? _down_params : _up_params).assign(buf.data, buf.data + buf.len);
        if (!_opened)
            return 0;
    }
    if (!sheaf_stream_params(_network->_net, _id, down, buf.data, buf.len))
        return 0;
    error_of_library();
    return -1;
}

} // namespace MRN

#endif
