// Names and addresses of hosts.
#ifndef XPLAT_NETUTILS_H
#define XPLAT_NETUTILS_H

#include <arpa/inet.h>
#include <cstring>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace XPlat {

typedef uint16_t XPlat_Port;

namespace NetUtils {

/// The host's full name; the name itself when it cannot be found. Calls give 0 or -1.
inline int FindNetworkName(const std::string &host, std::string &name)
{
    struct addrinfo hints, *found = nullptr;
    std::memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_CANONNAME;
    name = host;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found))
        return -1;
    if (found->ai_canonname)
        name = found->ai_canonname;
    freeaddrinfo(found);
    return 0;
}

/// The name of this host.
inline int GetLocalHostName(std::string &name)
{
    char text[256] = "";
    if (gethostname(text, sizeof text - 1))
        return -1;
    name = text;
    return 0;
}

inline int GetNetworkName(const std::string &host, std::string &name) { return FindNetworkName(host, name); }

/// The name without its domain.
inline int GetHostName(const std::string &host, std::string &name)
{
    name = host.substr(0, host.find('.'));
    return 0;
}

/// An address of the host, as text.
inline int GetNetworkAddr(const std::string &host, std::string &address)
{
    struct addrinfo hints, *found = nullptr;
    std::memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found))
        return -1;
    char text[INET_ADDRSTRLEN] = "";
    const struct sockaddr_in *first = reinterpret_cast<const struct sockaddr_in *>(found->ai_addr);
    const bool done = inet_ntop(AF_INET, &first->sin_addr, text, sizeof text) != nullptr;
    address = text;
    freeaddrinfo(found);
    return done ? 0 : -1;
}

/// Whether it is a name of this host.
inline bool IsLocalHost(const std::string &host)
{
    std::string here, one, other;
    if (host == "localhost" || GetLocalHostName(here) || host == here)
        return true;
    GetHostName(host, one);
    GetHostName(here, other);
    return one == other;
}

} // namespace NetUtils
} // namespace XPlat

#endif
