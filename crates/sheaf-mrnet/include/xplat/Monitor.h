// A lock with numbered conditions.
#ifndef XPLAT_MONITOR_H
#define XPLAT_MONITOR_H

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

namespace XPlat {

/// A monitor: calls give 0, and -1 for a condition that was not registered.
class Monitor {
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
    int RegisterCondition(unsigned int id)
    {
        std::lock_guard<std::recursive_mutex> guard(_mutex);
        _conditions[id].reset(new std::condition_variable_any());
        return 0;
    }
    /// The lock is held by the caller, and held again afterwards.
    int WaitOnCondition(unsigned int id)
    {
        std::condition_variable_any *condition = find(id);
        if (condition)
            condition->wait(_mutex);
        return condition ? 0 : -1;
    }
    int TimedWaitOnCondition(unsigned int id, int milliseconds)
    {
        std::condition_variable_any *condition = find(id);
        return condition && condition->wait_for(_mutex, std::chrono::milliseconds(milliseconds)) == std::cv_status::no_timeout ? 0 : -1;
    }
    int SignalCondition(unsigned int id)
    {
        std::condition_variable_any *condition = find(id);
        if (condition)
            condition->notify_one();
        return condition ? 0 : -1;
    }
    int BroadcastCondition(unsigned int id)
    {
        std::condition_variable_any *condition = find(id);
        if (condition)
            condition->notify_all();
        return condition ? 0 : -1;
    }

private:
    std::condition_variable_any *find(unsigned int id)
    {
        auto found = _conditions.find(id);
        return found == _conditions.end() ? nullptr : found->second.get();
    }
    std::recursive_mutex _mutex;
    std::map<unsigned int, std::unique_ptr<std::condition_variable_any> > _conditions;
};

} // namespace XPlat

#endif
