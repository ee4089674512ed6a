// Filters of the user's on every stream form: loaded, with parameters, by rank, failing.
#include "check.h"

#include <string>

using namespace MRN;

static int next_int(Stream *stream)
{
    int tag = 0, value = 0;
    PacketPtr packet;
    CHECK(stream->recv(&tag, packet) == 1);
    CHECK(packet->unpack("%d", &value) == 0);
    return value;
}

static void counts(Network *net, Communicator *all, const char *so, int n)
{
    Stream *add = net->new_Stream(all, net->load_FilterFunc(so, "add"), SFILTER_WAITFORALL);
    Stream *second = net->new_Stream(all, net->load_FilterFunc(so, "every_second"), SFILTER_WAITFORALL);
    Stream *twice = net->new_Stream(all, net->load_FilterFunc(so, "twice"), SFILTER_WAITFORALL);
    CHECK(add && second && twice);
    CHECK(add->send(TAG_GO, "%d", 6) == 0 && second->send(TAG_GO, "%d", 6) == 0 && twice->send(TAG_GO, "%d", 1) == 0);
    for (int wave = 0; wave < 6; wave++)
        CHECK(next_int(add) == wave * n);
    for (int wave = 1; wave < 6; wave += 2)
        CHECK(next_int(second) == wave * n);
    // Twice at each of two levels of filters: the inner nodes and the front end.
    for (int copy = 0; copy < 4; copy++)
        CHECK(next_int(twice) == 0);
    CHECK(!twice->has_Data());
    delete add;
    delete second;
    delete twice;
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    Network *net = start(argc, argv);
    Communicator *all = net->get_BroadcastCommunicator();
    const int n = static_cast<int>(all->size());
    const char *so = argv[3];
    counts(net, all, so, n);

    CHECK(net->load_FilterFunc("/nowhere/lib.so", "add") == -1);
    std::vector<const char *> names;
    names.push_back("scaled");
    names.push_back("where");
    names.push_back("fails");
    names.push_back("answer");
    std::vector<int> ids;
    CHECK(net->load_FilterFuncs(so, names, ids) == 4);

    Stream *scaled = net->new_Stream(all, ids[0], SFILTER_WAITFORALL);
    CHECK(scaled->set_FilterParameters(FILTER_UPSTREAM_TRANS, "%d", 10) == 0);
    CHECK(scaled->send(TAG_GO, "%d", 2) == 0);
    CHECK(next_int(scaled) == 0);
    CHECK(next_int(scaled) == 10 * n);

    // Node 1 passes two packets on; the front end takes one of each child at a time.
    char assign[64];
    std::snprintf(assign, sizeof assign, "%d => *; %d => 1;", ids[1], TFILTER_NULL);
    Stream *mixed = net->new_Stream(all, assign, std::to_string(SFILTER_WAITFORALL) + " => *", std::string());
    CHECK(mixed && mixed->send(TAG_OTHER, "%s", "x") == 0);
    int tag = 0;
    PacketPtr packet;
    CHECK(mixed->recv(&tag, packet) == 1 && tag == TAG_OTHER);
    CHECK(std::string(packet->get_FormatString()) == "%s");
    std::printf("%s\n", (*packet)[0]->get_string());

    Stream *fails = net->new_Stream(all, ids[2], SFILTER_WAITFORALL);
    CHECK(fails->send(TAG_GO, "%d", 1) == 0);
    const int fd = net->get_EventNotificationFd(Event::ERROR_EVENT);
    CHECK(fd >= 0);
    Event *event = nullptr;
    while (!(event = net->next_Event()))
        usleep(1000);
    CHECK(event->get_Class() == Event::ERROR_EVENT && event->get_Type() == ErrorEvent::ERROR_USAGE);
    const ErrorEvent::ErrorEventData *data = static_cast<ErrorEvent::ErrorEventData *>(event->get_Data());
    CHECK(data->get_Message().find("this filter never works") != std::string::npos);
    delete event;

    Stream *answer = net->new_Stream(all, ids[3], SFILTER_WAITFORALL);
    CHECK(answer->send(TAG_OTHER, "%s", "hear") == 0);
    CHECK(answer->recv(&tag, packet) == 1);
    // Each back end says so on the same stream when the filter's answer reaches it.
    CHECK(answer->recv(&tag, packet) == 1 && tag == FirstApplicationTag + 50);
    CHECK(std::string((*packet)[0]->get_string()) == "well done");
    delete net;
    return 0;
}
