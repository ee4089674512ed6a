// One value of a packet.
#ifndef MRNET_DATAELEMENT_H
#define MRNET_DATAELEMENT_H

#include "mrnet/Types.h"
#include "sheaf_pack.h"

#include <cstdlib>
#include <cstring>

namespace MRN {

namespace detail {
/// The type of a field, and back.
struct TypeRow {
    DataType scalar, array, large;
};
inline const TypeRow &type_row(unsigned kind)
{
    static const TypeRow rows[] = {
        { CHAR_T, CHAR_ARRAY_T, CHAR_LRG_ARRAY_T },
        { UCHAR_T, UCHAR_ARRAY_T, UCHAR_LRG_ARRAY_T },
        { INT16_T, INT16_ARRAY_T, INT16_LRG_ARRAY_T },
        { UINT16_T, UINT16_ARRAY_T, UINT16_LRG_ARRAY_T },
        { INT32_T, INT32_ARRAY_T, INT32_LRG_ARRAY_T },
        { UINT32_T, UINT32_ARRAY_T, UINT32_LRG_ARRAY_T },
        { INT64_T, INT64_ARRAY_T, INT64_LRG_ARRAY_T },
        { UINT64_T, UINT64_ARRAY_T, UINT64_LRG_ARRAY_T },
        { FLOAT_T, FLOAT_ARRAY_T, FLOAT_LRG_ARRAY_T },
        { DOUBLE_T, DOUBLE_ARRAY_T, DOUBLE_LRG_ARRAY_T },
        { STRING_T, STRING_ARRAY_T, STRING_LRG_ARRAY_T },
    };
    return rows[kind];
}
inline DataType type_of(sheaf_field field)
{
    const TypeRow &row = type_row(field.kind);
    return field.shape == SHEAF_SCALAR ? row.scalar : field.shape == SHEAF_ARRAY ? row.array : row.large;
}
inline bool field_of(DataType type, sheaf_field &field)
{
    for (unsigned kind = 0; kind <= SHEAF_STR; kind++) {
        const TypeRow &row = type_row(kind);
        field.kind = static_cast<uint8_t>(kind);
        field.shape = type == row.scalar ? SHEAF_SCALAR : type == row.array ? SHEAF_ARRAY : SHEAF_LARGE_ARRAY;
        if (type == row.scalar || type == row.array || type == row.large)
            return true;
    }
    return false;
}
} // namespace detail

/// One value of a packet, to be read and changed in place. Arrays and strings were allocated with
/// malloc(); those that are set are the element's from then on.
class DataElement {
public:
    DataElement() : _type(UNKNOWN_T), _count(0) { std::memset(&_value, 0, sizeof _value); }
    ~DataElement() { clear(); }

    DataType get_DataType() const { return _type; }
    DataType get_type() const { return _type; }
    uint64_t get_array_length() const { return _count; }

    char get_char() const { return _value.c; }
    unsigned char get_uchar() const { return _value.uc; }
    int16_t get_int16_t() const { return _value.hd; }
    uint16_t get_uint16_t() const { return _value.uhd; }
    int32_t get_int32_t() const { return _value.d; }
    uint32_t get_uint32_t() const { return _value.ud; }
    int64_t get_int64_t() const { return _value.ld; }
    uint64_t get_uint64_t() const { return _value.uld; }
    float get_float() const { return _value.f; }
    double get_double() const { return _value.lf; }
    const char *get_string() const { return static_cast<const char *>(_value.p); }
    /// The array, its type and its length; it stays the element's.
    const void *get_array(DataType *type, uint64_t *length) const
    {
        if (type)
            *type = _type;
        if (length)
            *length = _count;
        return _value.p;
    }
    const void *get_array(DataType *type, uint32_t *length) const
    {
        if (length)
            *length = static_cast<uint32_t>(_count);
        return get_array(type, static_cast<uint64_t *>(nullptr));
    }

    void set_char(char v) { clear(); _type = CHAR_T; _value.c = v; }
    void set_uchar(unsigned char v) { clear(); _type = UCHAR_T; _value.uc = v; }
    void set_int16_t(int16_t v) { clear(); _type = INT16_T; _value.hd = v; }
    void set_uint16_t(uint16_t v) { clear(); _type = UINT16_T; _value.uhd = v; }
    void set_int32_t(int32_t v) { clear(); _type = INT32_T; _value.d = v; }
    void set_uint32_t(uint32_t v) { clear(); _type = UINT32_T; _value.ud = v; }
    void set_int64_t(int64_t v) { clear(); _type = INT64_T; _value.ld = v; }
    void set_uint64_t(uint64_t v) { clear(); _type = UINT64_T; _value.uld = v; }
    void set_float(float v) { clear(); _type = FLOAT_T; _value.f = v; }
    void set_double(double v) { clear(); _type = DOUBLE_T; _value.lf = v; }
    void set_string(const char *text) { clear(); _type = STRING_T; _value.p = copy(text); }
    void set_array(const void *array, DataType type, uint64_t length)
    {
        clear();
        _type = type;
        _value.p = const_cast<void *>(array);
        _count = length;
    }

private:
    friend class Packet;
    DataElement(const DataElement &);
    DataElement &operator=(const DataElement &);

    static void *copy(const char *text)
    {
        const size_t len = text ? std::strlen(text) : 0;
        char *mine = static_cast<char *>(std::malloc(len + 1));
        if (mine) {
            if (len)
                std::memcpy(mine, text, len);
            mine[len] = 0;
        }
        return mine;
    }

    void clear()
    {
        sheaf_field field;
        if (_type != UNKNOWN_T && detail::field_of(_type, field) && (field.shape || field.kind == SHEAF_STR)) {
            if (field.shape && field.kind == SHEAF_STR)
                for (uint64_t at = 0; at < _count; at++)
                    std::free(static_cast<char **>(_value.p)[at]);
            std::free(_value.p);
        }
        std::memset(&_value, 0, sizeof _value);
        _type = UNKNOWN_T;
        _count = 0;
    }

    bool read(sheaf_reader &reader, sheaf_field field)
    {
        clear();
        if (sheaf_get_field(&reader, field, &_value, &_count))
            return false;
        _type = detail::type_of(field);
        return true;
    }

    void write(sheaf_buf &buf) const
    {
        sheaf_field field;
        if (!detail::field_of(_type, field)) {
            buf.failed = 1;
            return;
        }
        const void *value = field.shape ? _value.p : static_cast<const void *>(&_value);
        sheaf_put_field(&buf, field, value, _count);
    }

    DataType _type;
    union {
        char c;
        unsigned char uc;
        int16_t hd;
        uint16_t uhd;
        int32_t d;
        uint32_t ud;
        int64_t ld;
        uint64_t uld;
        float f;
        double lf;
        void *p;
    } _value;
    uint64_t _count;
};

} // namespace MRN

#endif
