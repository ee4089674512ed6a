// The filters that are always there.
#ifndef MRNET_FILTERIDS_H
#define MRNET_FILTERIDS_H

#include "mrnet/Types.h"

namespace MRN {

/// Upward (and downward) transformations.
const FilterId TFILTER_NULL = 0;
const FilterId TFILTER_SUM = 1;
const FilterId TFILTER_AVG = 2;
const FilterId TFILTER_MIN = 3;
const FilterId TFILTER_MAX = 4;
const FilterId TFILTER_ARRAY_CONCAT = 5;
const FilterId TFILTER_INT_EQ_CLASS = 6;
const FilterId TFILTER_PERFDATA = 7;
const FilterId TFILTER_TOPO_UPDATE = 8;
const FilterId TFILTER_TOPO_UPDATE_DOWNSTREAM = 9;

/// Synchronisation.
const FilterId SFILTER_DONTWAIT = 20;
const FilterId SFILTER_WAITFORALL = 21;
const FilterId SFILTER_TIMEOUT = 22;

namespace detail {
/// Filters that are loaded are numbered from here.
const FilterId first_loaded_filter = 100;

/// The name of a built-in transformation in the tree; null for others.
inline const char *filter_name(FilterId id)
{
    switch (id) {
    case TFILTER_NULL: return "null";
    case TFILTER_SUM: return "sum";
    case TFILTER_AVG: return "avg";
    case TFILTER_MIN: return "min";
    case TFILTER_MAX: return "max";
    case TFILTER_ARRAY_CONCAT: return "concat";
    case TFILTER_INT_EQ_CLASS: return "int-eq-class";
    // Both join arrays, each with those of its place. The tree knows of its changes without them.
    case TFILTER_PERFDATA: return "concat";
    case TFILTER_TOPO_UPDATE: return "concat";
    case TFILTER_TOPO_UPDATE_DOWNSTREAM: return "null";
    default: return nullptr;
    }
}
} // namespace detail

} // namespace MRN

#endif
