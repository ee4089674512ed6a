// Topology files for shapes.
#ifndef MRNET_TREE_H
#define MRNET_TREE_H

#include "mrnet/Error.h"

#include <fstream>
#include <list>
#include <sstream>
#include <unistd.h>

namespace MRN {

/// A tree of a shape, its nodes dealt out over hosts.
class Tree : public Error {
public:
    /// Hosts, each with how many processes it takes.
    typedef std::list<std::pair<std::string, unsigned> > HostList;

    /// The text of the topology file; empty when there is an error.
    const std::string &get_TopologyString() const { return _text; }
    bool create_TopologyFile(const char *file)
    {
        std::ofstream out(file);
        out << _text;
        out.close();
        if (!out)
            error(ERR_SYSTEM, std::string("cannot write ") + file);
        return !_text.empty() && out;
    }
    bool create_TopologyFile(FILE *file)
    {
        return !_text.empty() && std::fwrite(_text.data(), 1, _text.size(), file) == _text.size();
    }

    /// Hosts ("host" or "host:n") from a file, an open one, or memory.
    static bool get_HostsFromFile(const char *file, HostList &hosts)
    {
        std::ifstream in(file);
        std::ostringstream all;
        all << in.rdbuf();
        return in && get_HostsFromBuffer(all.str().c_str(), hosts);
    }
    static bool get_HostsFromFileStream(FILE *file, HostList &hosts)
    {
        std::string all;
        char block[4096];
        for (size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;)
            all.append(block, got);
        return get_HostsFromBuffer(all.c_str(), hosts);
    }
    static bool get_HostsFromBuffer(const char *text, HostList &hosts)
    {
        std::istringstream lines(text);
        std::string line, word;
        while (std::getline(lines, line)) {
            std::istringstream words(line.substr(0, line.find('#')));
            while (words >> word) {
                const size_t colon = word.rfind(':');
                const int count = colon == std::string::npos ? 1 : std::atoi(word.c_str() + colon + 1);
                if (count < 1)
                    return false;
                hosts.push_back(std::make_pair(word.substr(0, colon), static_cast<unsigned>(count)));
            }
        }
        return !hosts.empty();
    }

protected:
    Tree(char kind, std::string shape, const std::string &front, const HostList &hosts, const HostList &inner)
    {
        if (shape.size() < 2 || shape[1] != ':')
            shape = std::string(1, kind) + ":" + shape;
        const std::string back = join(hosts), middle = join(inner);
        char *text = sheaf_topology_make(shape.c_str(), front.empty() ? here().c_str() : front.c_str(),
                                         back.c_str(), middle.empty() ? nullptr : middle.c_str());
        if (text)
            _text = text;
        else
            error_of_library();
        sheaf_text_free(text);
    }

    static HostList with_processes(HostList hosts, unsigned processes)
    {
        for (auto &host : hosts)
            if (processes)
                host.second = processes;
        return hosts;
    }

private:
    static std::string join(const HostList &hosts)
    {
        std::ostringstream out;
        for (const auto &host : hosts)
            out << host.first << ":" << host.second << " ";
        return out.str();
    }
    static std::string here()
    {
        char name[256] = "localhost";
        return gethostname(name, sizeof name - 1) ? std::string("localhost") : std::string(name);
    }

    std::string _text;
};

/// "F^D" or "FxFxF": the fan-out of each level.
class BalancedTree : public Tree {
public:
    BalancedTree(const std::string &shape, const std::string &front, const HostList &hosts, unsigned processes = 0)
        : Tree('b', shape, front, with_processes(hosts, processes), HostList()) {}
    BalancedTree(const std::string &shape, const std::string &front, const HostList &back_ends,
                 const HostList &inner, unsigned back_end_processes = 0, unsigned inner_processes = 0)
        : Tree('b', shape, front, with_processes(back_ends, back_end_processes), with_processes(inner, inner_processes)) {}
};

/// "K@N": k-nomial, of N nodes.
class KnomialTree : public Tree {
public:
    KnomialTree(const std::string &shape, const std::string &front, const HostList &hosts, unsigned processes = 0)
        : Tree('k', shape, front, with_processes(hosts, processes), HostList()) {}
    KnomialTree(const std::string &shape, const std::string &front, const HostList &back_ends,
                const HostList &inner, unsigned back_end_processes = 0, unsigned inner_processes = 0)
        : Tree('k', shape, front, with_processes(back_ends, back_end_processes), with_processes(inner, inner_processes)) {}
};

/// "N:N,N:KxN": the children of each node, level by level.
class GenericTree : public Tree {
public:
    GenericTree(const std::string &shape, const std::string &front, const HostList &hosts, unsigned processes = 0)
        : Tree('g', std::string("g:") + (shape.compare(0, 2, "g:") ? shape : shape.substr(2)), front,
               with_processes(hosts, processes), HostList()) {}
    GenericTree(const std::string &shape, const std::string &front, const HostList &back_ends,
                const HostList &inner, unsigned back_end_processes = 0, unsigned inner_processes = 0)
        : Tree('g', std::string("g:") + (shape.compare(0, 2, "g:") ? shape : shape.substr(2)), front,
               with_processes(back_ends, back_end_processes), with_processes(inner, inner_processes)) {}
};

} // namespace MRN

#endif
