/* sheaf_pack.h - values into packets and out of them, by format string.
 *
 * Conversions: %c %uc %hd %uhd %d %ud %ld %uld %f %lf %s; with `a` after the % an array with a
 * 32-bit length, with `A` one with a 64-bit length. A packet begins with the length of its format
 * and the format; values follow, little-endian. Works as C99 and as C++.
 */
#ifndef SHEAF_PACK_H
#define SHEAF_PACK_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sheaf_kind {
    SHEAF_I8, SHEAF_U8, SHEAF_I16, SHEAF_U16, SHEAF_I32, SHEAF_U32, SHEAF_I64, SHEAF_U64,
    SHEAF_F32, SHEAF_F64, SHEAF_STR
};
enum sheaf_shape { SHEAF_SCALAR, SHEAF_ARRAY, SHEAF_LARGE_ARRAY };

typedef struct sheaf_field {
    uint8_t kind;
    uint8_t shape;
} sheaf_field;

/* The longest format of a packet, and more fields than that can have. */
#define SHEAF_FORMAT_MAX 254
#define SHEAF_FIELDS_MAX 128

/* Bytes that grow: in memory that the caller lends at first, if there is some. */
typedef struct sheaf_buf {
    uint8_t *data;
    size_t len, room;
    int failed;
    uint8_t *lent;
} sheaf_buf;

/* What most packets fit into. */
#define SHEAF_LENT_BYTES 256

/* An empty buffer in `room` bytes that are lent to it until sheaf_buf_free(). */
static inline void sheaf_buf_lend(sheaf_buf *buf, uint8_t *lent, size_t room)
{
    buf->data = buf->lent = lent;
    buf->len = 0;
    buf->room = room;
    buf->failed = 0;
}

static inline void sheaf_buf_free(sheaf_buf *buf)
{
    if (buf->data != buf->lent)
        free(buf->data);
    buf->data = buf->lent = NULL;
}

static inline size_t sheaf_width(unsigned kind)
{
    static const uint8_t width[] = { 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 0 };
    return width[kind];
}

static inline const char *sheaf_letters(unsigned kind)
{
    static const char *const letters[] = { "c", "uc", "hd", "uhd", "d", "ud", "ld", "uld", "f", "lf", "s" };
    return letters[kind];
}

/* The fields of a format; -1 for a conversion there is not. */
static inline int sheaf_parse_format(const char *format, sheaf_field *fields)
{
    int count = 0;
    memset(fields, 0, SHEAF_FIELDS_MAX * sizeof *fields);
    while (format && *format) {
        size_t letters;
        unsigned kind;
        if (*format == ' ' || *format == '\t' || *format == '\n' || *format == ',') {
            format++;
            continue;
        }
        if (*format != '%' || count == SHEAF_FIELDS_MAX)
            return -1;
        format++;
        fields[count].shape = SHEAF_SCALAR;
        if (*format == 'a' || *format == 'A')
            fields[count].shape = *format++ == 'a' ? SHEAF_ARRAY : SHEAF_LARGE_ARRAY;
        for (letters = 0; format[letters] >= 'a' && format[letters] <= 'z'; letters++) { }
        for (kind = 0; kind <= SHEAF_STR; kind++) {
            if (strlen(sheaf_letters(kind)) == letters && !strncmp(sheaf_letters(kind), format, letters))
                break;
        }
        if (kind > SHEAF_STR)
            return -1;
        fields[count++].kind = (uint8_t)kind;
        format += letters;
    }
    return count;
}

static inline void sheaf_put(sheaf_buf *buf, const void *data, size_t len)
{
    if (buf->failed || len == 0)
        return;
    if (len > buf->room - buf->len) {
        size_t room = (buf->len + len) * 2 + 64;
        uint8_t *grown = (uint8_t *)realloc(buf->data == buf->lent ? NULL : buf->data, room);
        if (!grown) {
            buf->failed = 1;
            return;
        }
        if (buf->data == buf->lent && buf->len)
            memcpy(grown, buf->data, buf->len);
        buf->data = grown;
        buf->room = room;
    }
    memcpy(buf->data + buf->len, data, len);
    buf->len += len;
}

static inline void sheaf_put_number(sheaf_buf *buf, uint64_t number)
{
    uint8_t bytes[10];
    size_t len = 0;
    while (number >= 0x80) {
        bytes[len++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    bytes[len++] = (uint8_t)number;
    sheaf_put(buf, bytes, len);
}

/* Appends `count` values of `width` bytes from memory, little-endian. */
static inline void sheaf_put_values(sheaf_buf *buf, const void *values, size_t count, size_t width)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    const uint8_t *from = (const uint8_t *)values;
    size_t at, byte;
    for (at = 0; at < count; at++)
        for (byte = width; byte-- > 0;)
            sheaf_put(buf, from + at * width + byte, 1);
#else
    sheaf_put(buf, values, count * width);
#endif
}

static inline void sheaf_put_text(sheaf_buf *buf, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    sheaf_put_number(buf, len);
    sheaf_put(buf, text, len);
}

/* Begins a packet of these fields. */
static inline void sheaf_put_format(sheaf_buf *buf, const sheaf_field *fields, int count)
{
    char text[8 * SHEAF_FIELDS_MAX];
    size_t len = 0;
    uint8_t head;
    int at;
    for (at = 0; at < count; at++) {
        const char *letters = sheaf_letters(fields[at].kind);
        if (at)
            text[len++] = ' ';
        text[len++] = '%';
        if (fields[at].shape != SHEAF_SCALAR)
            text[len++] = fields[at].shape == SHEAF_ARRAY ? 'a' : 'A';
        memcpy(text + len, letters, strlen(letters));
        len += strlen(letters);
    }
    if (len > SHEAF_FORMAT_MAX) {
        buf->failed = 1;
        return;
    }
    head = (uint8_t)len;
    sheaf_put(buf, &head, 1);
    sheaf_put(buf, text, len);
}

/* One field; `value` points to a scalar, to a char * for a text, or is the array itself. */
static inline void sheaf_put_field(sheaf_buf *buf, sheaf_field field, const void *value, uint64_t count)
{
    if (field.shape != SHEAF_SCALAR)
        sheaf_put_number(buf, value ? count : 0);
    else
        count = 1;
    if (!value && field.shape != SHEAF_SCALAR)
        return;
    if (field.kind == SHEAF_STR) {
        const char *const *texts = (const char *const *)value;
        uint64_t at;
        for (at = 0; at < count; at++)
            sheaf_put_text(buf, texts[at]);
    } else {
        sheaf_put_values(buf, value, (size_t)count, sheaf_width(field.kind));
    }
}

/* A format as it is remembered, by thread. */
typedef struct sheaf_format {
    char text[64];
    sheaf_field fields[24];
    uint8_t head[96];
    size_t head_len;
    int count;
} sheaf_format;

#define SHEAF_FORMATS_KEPT 4

/* A format that was used before on this thread, or is remembered from now on: what begins its packets,
 * and their fields. NULL for one that is too long to be, or malformed. */
static inline const sheaf_format *sheaf_format_of(const char *format)
{
    static __thread sheaf_format kept[SHEAF_FORMATS_KEPT];
    sheaf_format *slot = kept + ((uintptr_t)format >> 2) % SHEAF_FORMATS_KEPT;
    sheaf_field fields[SHEAF_FIELDS_MAX];
    sheaf_buf head;
    int count;
    if (format && slot->head_len && !strcmp(slot->text, format))
        return slot;
    if (!format || strlen(format) >= sizeof slot->text)
        return NULL;
    count = sheaf_parse_format(format, fields);
    if (count < 0 || (size_t)count > sizeof slot->fields / sizeof *fields)
        return NULL;
    sheaf_buf_lend(&head, slot->head, sizeof slot->head);
    sheaf_put_format(&head, fields, count);
    strcpy(slot->text, format);
    memcpy(slot->fields, fields, (size_t)count * sizeof *fields);
    slot->count = count;
    slot->head_len = head.data == slot->head && !head.failed ? head.len : 0;
    sheaf_buf_free(&head);
    return slot->head_len ? slot : NULL;
}

/* A list of arguments that can be passed on. */
typedef struct sheaf_args {
    va_list list;
} sheaf_args;

static inline void sheaf_pack_next(sheaf_buf *buf, sheaf_field field, sheaf_args *args)
{
    union { int8_t i8; int16_t i16; int32_t i32; int64_t i64; float f32; double f64; } v;
    if (field.shape != SHEAF_SCALAR) {
        const void *array = va_arg(args->list, const void *);
        uint64_t count = field.shape == SHEAF_ARRAY ? va_arg(args->list, uint32_t)
                                                    : va_arg(args->list, uint64_t);
        sheaf_put_field(buf, field, array, count);
        return;
    }
    switch (field.kind) {
    case SHEAF_I8: case SHEAF_U8: v.i8 = (int8_t)va_arg(args->list, int); sheaf_put_values(buf, &v, 1, 1); break;
    case SHEAF_I16: case SHEAF_U16: v.i16 = (int16_t)va_arg(args->list, int); sheaf_put_values(buf, &v, 1, 2); break;
    case SHEAF_I32: case SHEAF_U32: v.i32 = va_arg(args->list, int32_t); sheaf_put_values(buf, &v, 1, 4); break;
    case SHEAF_I64: case SHEAF_U64: v.i64 = va_arg(args->list, int64_t); sheaf_put_values(buf, &v, 1, 8); break;
    case SHEAF_F32: v.f32 = (float)va_arg(args->list, double); sheaf_put_values(buf, &v, 1, 4); break;
    case SHEAF_F64: v.f64 = va_arg(args->list, double); sheaf_put_values(buf, &v, 1, 8); break;
    default: sheaf_put_text(buf, va_arg(args->list, const char *)); break;
    }
}

/* Begins a packet of a format that is remembered. */
static inline void sheaf_put_head(sheaf_buf *buf, const sheaf_format *format)
{
    enum { SHORT = 32 };
    if (format->head_len <= SHORT && buf->room - buf->len >= SHORT) {
        /* So many bytes at once are quicker than those there are. */
        memcpy(buf->data + buf->len, format->head, SHORT);
        buf->len += format->head_len;
    } else {
        sheaf_put(buf, format->head, format->head_len);
    }
}

/* Appends a packet of the arguments, which stand as they do for printf (arrays: pointer, length).
 * -1 for a bad format. The buffer is freed with sheaf_buf_free(). */
static inline int sheaf_pack_args(sheaf_buf *buf, const char *format, sheaf_args *args)
{
    const sheaf_format *known = sheaf_format_of(format);
    sheaf_field parsed[SHEAF_FIELDS_MAX];
    const sheaf_field *fields = known ? known->fields : parsed;
    int at, count = known ? known->count : sheaf_parse_format(format, parsed);
    if (count < 0)
        return -1;
    if (known)
        sheaf_put_head(buf, known);
    else
        sheaf_put_format(buf, parsed, count);
    for (at = 0; at < count; at++)
        sheaf_pack_next(buf, fields[at], args);
    return buf->failed ? -1 : 0;
}

/* The same from pointers: to each scalar, to each array and then to its length. */
static inline int sheaf_pack_pointers(sheaf_buf *buf, const char *format, const void *const *data)
{
    sheaf_field fields[SHEAF_FIELDS_MAX];
    int at, count = sheaf_parse_format(format, fields);
    if (count < 0)
        return -1;
    sheaf_put_format(buf, fields, count);
    for (at = 0; at < count; at++) {
        const void *value = *data++;
        uint64_t len = 1;
        if (fields[at].shape == SHEAF_ARRAY)
            len = *(const uint32_t *)*data++;
        else if (fields[at].shape == SHEAF_LARGE_ARRAY)
            len = *(const uint64_t *)*data++;
        else if (fields[at].kind == SHEAF_STR) {
            const char *text = (const char *)value;
            sheaf_put_field(buf, fields[at], &text, 1);
            continue;
        }
        sheaf_put_field(buf, fields[at], value, len);
    }
    return buf->failed ? -1 : 0;
}

/* What is left of a packet to read. */
typedef struct sheaf_reader {
    const uint8_t *at;
    size_t left;
} sheaf_reader;

static inline int sheaf_get(sheaf_reader *reader, void *into, size_t len)
{
    if (len > reader->left)
        return -1;
    if (into && len)
        memcpy(into, reader->at, len);
    reader->at += len;
    reader->left -= len;
    return 0;
}

static inline int sheaf_get_number(sheaf_reader *reader, uint64_t *number)
{
    unsigned shift;
    uint8_t byte;
    *number = 0;
    for (shift = 0; shift < 64; shift += 7) {
        if (sheaf_get(reader, &byte, 1))
            return -1;
        *number |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 0;
    }
    return -1;
}

static inline int sheaf_get_values(sheaf_reader *reader, void *into, uint64_t count, size_t width)
{
    if (width && count > reader->left / width)
        return -1;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    {
        uint8_t *to = (uint8_t *)into;
        uint64_t at;
        size_t byte;
        for (at = 0; at < count; at++)
            for (byte = width; byte-- > 0;)
                if (sheaf_get(reader, to + at * width + byte, 1))
                    return -1;
        return 0;
    }
#else
    return sheaf_get(reader, into, (size_t)count * width);
#endif
}

/* A text, which the caller frees. */
static inline int sheaf_get_text(sheaf_reader *reader, char **text)
{
    uint64_t len;
    if (sheaf_get_number(reader, &len) || len > reader->left)
        return -1;
    *text = (char *)malloc((size_t)len + 1);
    if (!*text)
        return -1;
    (*text)[len] = 0;
    return sheaf_get(reader, *text, (size_t)len);
}

/* The fields of a packet; the reader stands at the first value afterwards. */
static inline int sheaf_get_format(sheaf_reader *reader, sheaf_field *fields)
{
    char text[256];
    uint8_t len;
    if (sheaf_get(reader, &len, 1) || sheaf_get(reader, text, len))
        return -1;
    text[len] = 0;
    return sheaf_parse_format(text, fields);
}

/* Passes a field over; -1 when it is not there as a whole. */
static inline int sheaf_skip_field(sheaf_reader *reader, sheaf_field field)
{
    const size_t width = sheaf_width(field.kind);
    uint64_t count = 1, len;
    if (field.shape != SHEAF_SCALAR && sheaf_get_number(reader, &count))
        return -1;
    if (field.kind != SHEAF_STR)
        return count > reader->left / width ? -1 : sheaf_get(reader, NULL, (size_t)count * width);
    for (; count > 0; count--)
        if (sheaf_get_number(reader, &len) || len > reader->left || sheaf_get(reader, NULL, (size_t)len))
            return -1;
    return 0;
}

/* One field: a scalar (a text: a char *) into `into`, or an array that the caller frees (and each
 * text of an array of them) with its length. */
static inline int sheaf_get_field(sheaf_reader *reader, sheaf_field field, void *into, uint64_t *count)
{
    void *array;
    size_t width = field.kind == SHEAF_STR ? sizeof(char *) : sheaf_width(field.kind);
    uint64_t at, least = field.kind == SHEAF_STR ? 1 : width;
    if (field.shape == SHEAF_SCALAR) {
        if (field.kind == SHEAF_STR)
            return sheaf_get_text(reader, (char **)into);
        return sheaf_get_values(reader, into, 1, width);
    }
    /* A count that the bytes cannot hold must not allocate. */
    if (sheaf_get_number(reader, count) || *count > reader->left / least)
        return -1;
    array = calloc((size_t)*count ? (size_t)*count : 1, width);
    if (!array)
        return -1;
    *(void **)into = array;
    if (field.kind != SHEAF_STR)
        return sheaf_get_values(reader, array, *count, width);
    for (at = 0; at < *count; at++) {
        if (sheaf_get_text(reader, (char **)array + at)) {
            while (at-- > 0)
                free(((char **)array)[at]);
            free(array);
            *(void **)into = NULL;
            *count = 0;
            return -1;
        }
    }
    return 0;
}

/* Goes past the beginning of a packet; -1 where it is not written as it is here. */
static inline int sheaf_get_head(sheaf_reader *reader, const sheaf_format *format)
{
    if (reader->left < format->head_len || memcmp(reader->at, format->head, format->head_len))
        return -1;
    return sheaf_get(reader, NULL, format->head_len);
}

/* The same, however the format is written. */
static inline int sheaf_get_same(sheaf_reader *reader, const sheaf_field *want, int count)
{
    sheaf_field have[SHEAF_FIELDS_MAX];
    int at;
    if (sheaf_get_format(reader, have) != count)
        return -1;
    for (at = 0; at < count; at++)
        if (have[at].kind != want[at].kind || have[at].shape != want[at].shape)
            return -1;
    return 0;
}

/* Takes all values out of a packet, into the pointers among the arguments (arrays: pointer to the
 * array, pointer to its length). What is not a scalar was allocated with malloc() and belongs to
 * the caller. -1 when the packet is not of this format; then nothing is given. */
static inline int sheaf_unpack_args(const uint8_t *data, size_t len, const char *format, sheaf_args *args)
{
    const sheaf_format *known = sheaf_format_of(format);
    sheaf_field parsed[SHEAF_FIELDS_MAX];
    const sheaf_field *have = known ? known->fields : parsed;
    sheaf_reader reader, whole;
    int at, count = known ? known->count : sheaf_parse_format(format, parsed);
    reader.at = data;
    reader.left = len;
    if (count < 0 || ((!known || sheaf_get_head(&reader, known)) && sheaf_get_same(&reader, have, count)))
        return -1;
    whole = reader;
    for (at = 0; at < count; at++)
        if (sheaf_skip_field(&whole, have[at]))
            return -1;
    for (at = 0; at < count; at++) {
        uint64_t elements = 0;
        if (sheaf_get_field(&reader, have[at], va_arg(args->list, void *), &elements))
            return -1;
        if (have[at].shape == SHEAF_ARRAY)
            *va_arg(args->list, uint32_t *) = (uint32_t)elements;
        else if (have[at].shape == SHEAF_LARGE_ARRAY)
            *va_arg(args->list, uint64_t *) = elements;
    }
    return 0;
}

/* The same with the values (or the pointers) as arguments of the call. */
static inline int sheaf_pack(sheaf_buf *buf, const char *format, ...)
{
    sheaf_args args;
    int done;
    va_start(args.list, format);
    done = sheaf_pack_args(buf, format, &args);
    va_end(args.list);
    return done;
}

static inline int sheaf_unpack(const uint8_t *data, size_t len, const char *format, ...)
{
    sheaf_args args;
    int done;
    va_start(args.list, format);
    done = sheaf_unpack_args(data, len, format, &args);
    va_end(args.list);
    return done;
}

#ifdef __cplusplus
}
#endif
#endif
