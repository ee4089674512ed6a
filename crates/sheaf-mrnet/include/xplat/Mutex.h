// A lock, as MRNet's tools use it.
#ifndef XPLAT_MUTEX_H
#define XPLAT_MUTEX_H

#include <mutex>

namespace XPlat {

/// The same thread may take it again. Calls give 0.
class Mutex {
public:
    int Lock()
    {
        _mutex.lock();
        return 0;
    }
    int Unlock()
    {
        _mutex.unlock();
        return 0;
    }

private:
    std::recursive_mutex _mutex;
};

} // namespace XPlat

#endif
