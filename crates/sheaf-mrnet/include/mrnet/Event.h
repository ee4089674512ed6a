// What happens in a network.
#ifndef MRNET_EVENT_H
#define MRNET_EVENT_H

#include "mrnet/Types.h"

namespace MRN {

typedef int EventType;

/// What an event carries.
class EventData {
public:
    virtual ~EventData() {}
};

/// One event.
class Event {
public:
    enum EventClass { DATA_EVENT = 0, TOPOLOGY_EVENT = 1, ERROR_EVENT = 2 };
    /// Every type of a class, for callbacks.
    static const EventType EVENT_TYPE_ALL = -1;

    Event(EventClass event_class, EventType type, EventData *data)
        : _class(event_class), _type(type), _data(data)
    {
    }
    EventClass get_Class() const { return _class; }
    EventType get_Type() const { return _type; }
    /// It lives as long as the event.
    EventData *get_Data() const { return _data.get(); }

private:
    EventClass _class;
    EventType _type;
    std::shared_ptr<EventData> _data;
};

typedef Event::EventClass EventClass;
typedef void (*evt_cb_func)(Event *, void *);

/// Packets have come.
class DataEvent : public Event {
public:
    enum { DATA_AVAILABLE = 0 };
    class DataEventData : public EventData {
    public:
        explicit DataEventData(unsigned int stream) : _stream(stream) {}
        unsigned int get_StreamId() const { return _stream; }

    private:
        unsigned int _stream;
    };
};

/// The tree has changed.
class TopologyEvent : public Event {
public:
    enum { TOPOL_ADD_BE = 0, TOPOL_ADD_CP = 1, TOPOL_REMOVE_NODE = 2, TOPOL_CHANGE_PARENT = 3 };
    class TopolEventData : public EventData {
    public:
        TopolEventData(Rank rank, Rank parent) : _rank(rank), _parent(parent) {}
        Rank get_Rank() const { return _rank; }
        Rank get_Parent_Rank() const { return _parent; }

    private:
        Rank _rank, _parent;
    };
};

/// Something went wrong.
class ErrorEvent : public Event {
public:
    enum { ERROR_INTERNAL = 0, ERROR_SYSTEM = 1, ERROR_USAGE = 2 };
    class ErrorEventData : public EventData {
    public:
        ErrorEventData(Rank rank, const std::string &message) : _rank(rank), _message(message) {}
        Rank get_Rank() const { return _rank; }
        const std::string &get_Message() const { return _message; }

    private:
        Rank _rank;
        std::string _message;
    };
};

} // namespace MRN

#endif
