// What went wrong in an object.
#ifndef MRNET_ERROR_H
#define MRNET_ERROR_H

#include "mrnet/Types.h"
#include "sheaf.h"

namespace MRN {

enum ErrorCode {
    ERR_NONE = 0,
    ERR_TOPOLOGY_FORMAT,
    ERR_TOPOLOGY_CYCLE,
    ERR_TOPOLOGY_NOTCONNECTED,
    ERR_NETWORK_FAILURE,
    ERR_FORMATSTR,
    ERR_PACKING,
    ERR_INTERNAL,
    ERR_SYSTEM,
    ERR_CODE_LAST
};

/// Base of everything that can fail: remembers the last failure.
class Error {
public:
    Error() : _error(ERR_NONE) {}
    virtual ~Error() {}

    bool has_Error() const { return _error != ERR_NONE; }
    ErrorCode get_Error() const { return _error; }
    const std::string &get_ErrorMessage() const { return _message; }

    static const char *get_ErrorStr(ErrorCode code)
    {
        switch (code) {
        case ERR_NONE: return "no error";
        case ERR_TOPOLOGY_FORMAT: return "the topology is malformed";
        case ERR_TOPOLOGY_CYCLE: return "the topology has a cycle";
        case ERR_TOPOLOGY_NOTCONNECTED: return "the topology is not one tree";
        case ERR_NETWORK_FAILURE: return "the network failed";
        case ERR_FORMATSTR: return "the format string does not fit";
        case ERR_PACKING: return "a packet could not be packed or unpacked";
        case ERR_INTERNAL: return "internal error";
        case ERR_SYSTEM: return "a system call failed";
        default: return "unknown error";
        }
    }

    /// Prints `text` and what went wrong.
    void perror(const char *text) const
    {
        const std::string message = _message.empty() ? get_ErrorStr(_error) : _message;
        std::fprintf(stderr, "%s%s%s\n", text ? text : "", text && *text ? ": " : "", message.c_str());
    }

    /// Notes a failure; what the library said of it last, if nothing else is given.
    void error(ErrorCode code, const std::string &message = std::string()) const
    {
        _error = code;
        _message = message;
    }

protected:
    /// Notes what the library said of its last failure.
    void error_of_library() const { error(code_of(sheaf_error()), sheaf_error_message()); }

    static ErrorCode code_of(int code)
    {
        switch (code) {
        case SHEAF_OK: return ERR_NONE;
        case SHEAF_TOPOLOGY: return ERR_TOPOLOGY_FORMAT;
        case SHEAF_LAUNCH: case SHEAF_ENDED: case SHEAF_TIMED_OUT: return ERR_NETWORK_FAILURE;
        case SHEAF_PACKET: return ERR_PACKING;
        case SHEAF_SYSTEM: return ERR_SYSTEM;
        default: return ERR_INTERNAL;
        }
    }

private:
    mutable ErrorCode _error;
    mutable std::string _message;
};

} // namespace MRN

#endif
