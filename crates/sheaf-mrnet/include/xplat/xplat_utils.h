// Small helpers of MRNet's tools.
#ifndef XPLAT_UTILS_H
#define XPLAT_UTILS_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
#include <string>

namespace XPlat {
namespace PathUtils {
/// The last part of a path, and what is before it.
inline std::string GetFilename(const std::string &path)
{
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}
inline std::string GetDirname(const std::string &path)
{
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash ? slash : 1);
}
} // namespace PathUtils

namespace Process {
inline int GetProcessId() { return static_cast<int>(getpid()); }
} // namespace Process
} // namespace XPlat
#endif

#endif
