// Typed values that travel together.
#ifndef MRNET_PACKET_H
#define MRNET_PACKET_H

#include "mrnet/DataElement.h"
#include "mrnet/Error.h"
#include "mrnet/FilterIds.h"

#include <atomic>
#include <cstdarg>
#include <mutex>

// A filter brings code along that uses these, and never runs it: it need not link the library.
extern "C" {
void sheaf_message_free(sheaf_message *message) __attribute__((weak));
int sheaf_net_is_over(const sheaf_net *net) __attribute__((weak));
void sheaf_stream_close(const sheaf_net *net, uint32_t id) __attribute__((weak));
}

namespace MRN {

namespace detail {
template <class T> struct PacketStatics {
    /// No packet.
    static const std::shared_ptr<T> NullPacket;
};
template <class T> const std::shared_ptr<T> PacketStatics<T>::NullPacket = std::shared_ptr<T>();
} // namespace detail

/// A packet: a tag, a stream, and values that a format string describes.
///
/// What unpack() gives that is not a scalar belongs to the caller, who frees it with free(); after
/// set_DestroyData(true) it stays the packet's.
class Packet : public Error, public detail::PacketStatics<Packet> {
public:
    Packet(unsigned int stream, int tag, const char *format, ...) : Packet(Blank(), stream, tag)
    {
        sheaf_args args;
        va_start(args.list, format);
        pack(format, args);
        va_end(args.list);
    }
    Packet(int tag, const char *format, ...) : Packet(Blank(), 0, tag)
    {
        sheaf_args args;
        va_start(args.list, format);
        pack(format, args);
        va_end(args.list);
    }
    Packet(const char *format, va_list list, unsigned int stream, int tag) : Packet(Blank(), stream, tag)
    {
        sheaf_args args;
        va_copy(args.list, list);
        pack(format, args);
        va_end(args.list);
    }
    Packet(unsigned int stream, int tag, const void **data, const char *format) : Packet(Blank(), stream, tag)
    {
        check(sheaf_pack_pointers(&_bytes, format, data));
    }
    Packet(int tag, const void **data, const char *format) : Packet(0u, tag, data, format) {}
    /// From its bytes.
    Packet(unsigned int stream, int tag, Rank source, const uint8_t *data, size_t len)
        : Packet(Blank(), stream, tag)
    {
        _source = _inlet = source;
        sheaf_put(&_bytes, data, len);
    }
    /// A packet that has come; it is freed with this one.
    explicit Packet(sheaf_message *received) : Packet(Blank(), received->stream, received->tag)
    {
        _source = _inlet = received->source;
        _received = received;
    }
    ~Packet()
    {
        if (_received)
            sheaf_message_free(_received);
        sheaf_buf_free(&_bytes);
    }

    int get_Tag() const { return _tag; }
    void set_Tag(int tag) { _tag = tag; }
    unsigned int get_StreamId() const { return _stream; }
    void set_StreamId(unsigned int stream) { _stream = stream; }
    Rank get_SourceRank() const { return _source; }
    void set_SourceRank(Rank rank) { _source = rank; }
    Rank get_InletNodeRank() const { return _inlet; }
    void set_InletNodeRank(Rank rank) { _inlet = rank; }
    /// Bytes of the packet on the wire.
    uint64_t get_BufferLen() const { return bytes().left; }

    /// The members that it is for; none means all.
    bool get_Destinations(unsigned &count, Rank **ranks) const
    {
        count = static_cast<unsigned>(_destinations.size());
        *ranks = count ? const_cast<Rank *>(_destinations.data()) : nullptr;
        return count != 0;
    }
    bool set_Destinations(const Rank *ranks, unsigned int count)
    {
        if (count && !ranks)
            return false;
        _destinations.assign(ranks, ranks + count);
        return true;
    }
    const std::vector<Rank> &get_Destinations() const { return _destinations; }

    /// Whether arrays and strings that unpack() gives are freed with the packet.
    void set_DestroyData(bool destroy) { _destroy = destroy; }

    /// In its canonical spelling.
    const char *get_FormatString() const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        if (_format.empty()) {
            sheaf_reader reader = bytes();
            uint8_t len = 0;
            if (!sheaf_get(&reader, &len, 1) && len <= reader.left)
                _format.assign(reinterpret_cast<const char *>(reader.at), len);
        }
        return _format.c_str();
    }

    /// Takes out all values: a pointer for each (arrays: for the array and for its length).
    int unpack(const char *format, ...) const
    {
        va_list list;
        va_start(list, format);
        const int done = unpack(list, format, true);
        va_end(list);
        return done;
    }
    int unpack(va_list list, const char *format, bool) const
    {
        sheaf_args args;
        va_copy(args.list, list);
        int done;
        if (_destroy) {
            done = lend(format, args);
        } else {
            settle();
            const sheaf_reader all = bytes();
            done = sheaf_unpack_args(all.at, all.left, format, &args);
        }
        va_end(args.list);
        if (done)
            error(ERR_FORMATSTR, "the packet's format is " + std::string(get_FormatString()));
        return done;
    }

    /// The value at `index`, which may be changed; null beyond the last.
    DataElement *operator[](size_t index)
    {
        std::vector<std::unique_ptr<DataElement> > &all = elements();
        return index < all.size() ? all[index].get() : nullptr;
    }
    const DataElement *operator[](size_t index) const { return get_DataElement(index); }
    const DataElement *get_DataElement(size_t index) const
    {
        const std::vector<std::unique_ptr<DataElement> > &all = elements();
        return index < all.size() ? all[index].get() : nullptr;
    }
    unsigned int get_NumDataElements() const { return static_cast<unsigned>(elements().size()); }

    /// Same stream, tag, sender and values.
    bool operator==(const Packet &other) const
    {
        const sheaf_reader a = wire(), b = other.wire();
        return _stream == other._stream && _tag == other._tag && _source == other._source
            && a.left == b.left && (a.left == 0 || !std::memcmp(a.at, b.at, a.left));
    }
    bool operator!=(const Packet &other) const { return !(*this == other); }

    /// The packet as it goes over the wire, with all changes.
    sheaf_reader wire() const
    {
        settle();
        return bytes();
    }

private:
    struct Blank {};
    Packet(Blank, unsigned int stream, int tag)
        : _stream(stream), _tag(tag), _source(UnknownRank), _inlet(UnknownRank), _destroy(false),
          _received(nullptr), _open(false)
    {
        std::memset(&_bytes, 0, sizeof _bytes);
    }
    Packet(const Packet &);
    Packet &operator=(const Packet &);

    void pack(const char *format, sheaf_args &args) { check(sheaf_pack_args(&_bytes, format, &args)); }
    void check(int packed)
    {
        if (packed)
            error(ERR_FORMATSTR, "the format string is malformed");
    }

    sheaf_reader bytes() const
    {
        sheaf_reader reader;
        reader.at = _received ? _received->data : _bytes.data;
        reader.left = _received ? _received->len : _bytes.len;
        return reader;
    }

    std::vector<std::unique_ptr<DataElement> > &elements() const
    {
        std::lock_guard<std::mutex> guard(_mutex);
        if (_open)
            return _elements;
        _open = true;
        sheaf_reader reader = bytes();
        sheaf_field fields[SHEAF_FIELDS_MAX];
        const int count = sheaf_get_format(&reader, fields);
        for (int at = 0; at < count; at++) {
            std::unique_ptr<DataElement> element(new DataElement());
            if (!element->read(reader, fields[at])) {
                error(ERR_PACKING, "the packet is malformed");
                break;
            }
            _elements.push_back(std::move(element));
        }
        return _elements;
    }

    /// Packs the elements again: they may have been changed.
    void settle() const
    {
        if (!_open)
            return;
        std::lock_guard<std::mutex> guard(_mutex);
        sheaf_buf buf;
        std::memset(&buf, 0, sizeof buf);
        sheaf_field fields[SHEAF_FIELDS_MAX];
        int count = 0;
        for (const auto &element : _elements)
            if (!detail::field_of(element->get_DataType(), fields[count++]))
                return;
        sheaf_put_format(&buf, fields, count);
        for (const auto &element : _elements)
            element->write(buf);
        if (buf.failed) {
            sheaf_buf_free(&buf);
            return;
        }
        if (_received)
            sheaf_message_free(_received);
        _received = nullptr;
        sheaf_buf_free(&_bytes);
        _bytes = buf;
        _format.clear();
    }

    /// Unpacks without giving away: pointers into the elements.
    int lend(const char *format, sheaf_args &args) const
    {
        sheaf_field want[SHEAF_FIELDS_MAX];
        const int count = sheaf_parse_format(format, want);
        const std::vector<std::unique_ptr<DataElement> > &all = elements();
        if (count < 0 || static_cast<size_t>(count) != all.size())
            return -1;
        for (int at = 0; at < count; at++)
            if (detail::type_of(want[at]) != all[at]->get_DataType())
                return -1;
        for (int at = 0; at < count; at++) {
            void *into = va_arg(args.list, void *);
            const bool scalar = want[at].shape == SHEAF_SCALAR && want[at].kind != SHEAF_STR;
            std::memcpy(into, &all[at]->_value, scalar ? sheaf_width(want[at].kind) : sizeof(void *));
            if (want[at].shape == SHEAF_ARRAY)
                *va_arg(args.list, uint32_t *) = static_cast<uint32_t>(all[at]->_count);
            else if (want[at].shape == SHEAF_LARGE_ARRAY)
                *va_arg(args.list, uint64_t *) = all[at]->_count;
        }
        return 0;
    }

    unsigned int _stream;
    int _tag;
    Rank _source, _inlet;
    std::vector<Rank> _destinations;
    bool _destroy;
    mutable sheaf_buf _bytes;
    mutable sheaf_message *_received;
    mutable std::mutex _mutex;
    mutable std::string _format;
    /// The values, once somebody has asked for one of them.
    mutable std::atomic<bool> _open;
    mutable std::vector<std::unique_ptr<DataElement> > _elements;
};

} // namespace MRN

#endif
