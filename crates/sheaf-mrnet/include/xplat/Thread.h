// Threads, as MRNet's tools use them.
#ifndef XPLAT_THREAD_H
#define XPLAT_THREAD_H

#include <pthread.h>

namespace XPlat {

/// Calls give 0, or an error number.
class Thread {
public:
    typedef pthread_t Id;
    typedef void *(*Func)(void *);

    static int Create(Func function, void *data, Id *id) { return pthread_create(id, nullptr, function, data); }
    static Id GetId() { return pthread_self(); }
    static int Join(Id id, void **result) { return pthread_join(id, result); }
    static int Cancel(Id id) { return pthread_cancel(id); }
    static void Exit(void *result) { pthread_exit(result); }
};

} // namespace XPlat

#endif
