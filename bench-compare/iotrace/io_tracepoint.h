/* LTTng's tracepoint, with what a record of ours has. LTTng adds the moment, which is the operation's end, and
 * knows process and thread by contexts (lttng add-context), which are off unless said. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER sheaf_compare

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./io_tracepoint.h"

#if !defined(IO_TRACEPOINT_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define IO_TRACEPOINT_H
#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
    sheaf_compare, io,
    LTTNG_UST_TP_ARGS(uint64_t, begun, uint16_t, op, uint64_t, file, uint64_t, offset, uint64_t, asked, int64_t, result),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint64_t, begun, begun)
        lttng_ust_field_integer(uint16_t, op, op)
        lttng_ust_field_integer(uint64_t, file, file)
        lttng_ust_field_integer(uint64_t, offset, offset)
        lttng_ust_field_integer(uint64_t, asked, asked)
        lttng_ust_field_integer(int64_t, result, result)))
#endif

#include <lttng/tracepoint-event.h>
