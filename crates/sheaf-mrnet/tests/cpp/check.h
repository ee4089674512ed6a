// What the test tools share: a check that fails the program, and how a front end starts.
#ifndef CHECK_H
#define CHECK_H

#include "mrnet/MRNet.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::_Exit(1);                                                           \
        }                                                                            \
    } while (0)

enum {
    TAG_GO = MRN::FirstApplicationTag,
    TAG_END,
    TAG_OTHER,
    TAG_CLASSES,
    TAG_SOME,
    TAG_FLOOD,
    TAG_OWN,
    TAG_CLOSE,
    TAG_LEAVE
};

/// Starts the tree of argv[1] with the back end argv[2].
inline MRN::Network *start(int argc, char **argv, const char **back_end_args = nullptr)
{
    CHECK(argc > 2);
    MRN::Network *net = MRN::Network::CreateNetworkFE(argv[1], argv[2], back_end_args);
    if (net->has_Error()) {
        net->perror("front end");
        std::_Exit(1);
    }
    return net;
}

#endif
