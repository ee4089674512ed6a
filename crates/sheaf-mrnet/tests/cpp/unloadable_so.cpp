// A filter that can be loaded where the front end's program is, and nowhere else.
#include "mrnet/MRNet.h"

extern "C" {
int only_in_the_front_end();

const char *homesick_format_string = "%d";
void homesick(std::vector<MRN::PacketPtr> &in, std::vector<MRN::PacketPtr> &out, std::vector<MRN::PacketPtr> &,
              void **, MRN::PacketPtr &, const MRN::TopologyLocalInfo &)
{
    if (only_in_the_front_end())
        out.push_back(in[0]);
}
}
