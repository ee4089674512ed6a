//! What programs do with sockets is recorded, to the call and the byte.
use crate::program::{Trace, compile, succeed};
use sheaf_recorder::IoOp;

const SOCKETS: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#define WANT(x) do { if (!(x)) { perror(#x); exit(9); } } while (0)

int main(void) {
    char buffer[4096];
    memset(buffer, 'x', sizeof buffer);
    int ends[2];
    WANT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    WANT(send(ends[0], buffer, 100, 0) == 100);
    WANT(recv(ends[1], buffer, 4096, MSG_PEEK) == 100);
    WANT(recv(ends[1], buffer, 4096, 0) == 100);
    struct iovec pieces[2] = {{buffer, 10}, {buffer + 10, 20}};
    struct msghdr message = {0};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    WANT(sendmsg(ends[0], &message, 0) == 30 && recvmsg(ends[1], &message, 0) == 30);
    WANT(write(ends[0], buffer, 7) == 7 && read(ends[1], buffer, 4096) == 7);
    WANT(recv(ends[1], buffer, 4096, MSG_DONTWAIT) == -1 && errno == EAGAIN);

    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {0};
    socklen_t len = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    WANT(listener >= 0 && bind(listener, (void *)&address, len) == 0 && listen(listener, 1) == 0);
    WANT(getsockname(listener, (void *)&address, &len) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    WANT(client >= 0 && connect(client, (void *)&address, len) == 0);
    int served = accept(listener, 0, 0);
    WANT(served >= 0 && send(client, buffer, 4096, 0) == 4096);
    WANT(recv(served, buffer, 4096, MSG_WAITALL) == 4096);
    WANT(close(client) == 0 && close(served) == 0 && close(listener) == 0);

    int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = 0;
    WANT(bind(to, (void *)&address, len) == 0 && getsockname(to, (void *)&address, &len) == 0);
    WANT(sendto(from, buffer, 50, 0, (void *)&address, len) == 50);
    WANT(recvfrom(to, buffer, 20, MSG_TRUNC, 0, 0) == 50);
    WANT(connect(from, (void *)&address, len) == 0);
    struct mmsghdr several[2] = {{message}, {message}};
    WANT(sendmmsg(from, several, 2, 0) == 2 && recvmmsg(to, several, 2, 0, 0) == 2);
    return 0;
}
"#;

#[test]
fn socket_calls_and_bytes_are_recorded() {
    let place = tempfile::tempdir().unwrap();
    let Some(program) = compile(SOCKETS, &[], place.path()) else { return };
    let trace = Trace::new();
    succeed(trace.command(program).current_dir(place.path()));
    let all = trace.traced();
    let [traced] = &all[..] else { panic!("{} segments", all.len()) };
    assert_eq!((traced.read.lost, traced.read.unplaced, traced.read.names_lost), (0, 0, 0));
    let sent = 100 + 30 + 4096 + 50 + 2 * 30;
    // What is looked at stays there, and what had no room was not received.
    let received = 100 + 30 + 4096 + 20 + 2 * 30;
    for (op, calls, failed, bytes) in [
        (IoOp::Socket, 4, 0, 0),
        (IoOp::Connect, 2, 0, 0),
        (IoOp::Accept, 1, 0, 0),
        (IoOp::Send, 5, 0, sent),
        (IoOp::Receive, 7, 1, received),
        (IoOp::Write, 1, 0, 7),
        (IoOp::Read, 1, 0, 7),
        (IoOp::Close, 3, 0, 0),
    ] {
        assert_eq!(traced.sum(op, "]"), (calls, failed, bytes), "{}", op.word());
    }
    // That of a pair has made two.
    assert_eq!(traced.read.records.iter().filter(|one| one.op == Some(IoOp::Socket)).count(), 5);
    let names = traced.read.records.iter().map(|one| traced.read.names.get(&one.file));
    let of_sockets = names.flatten().filter(|name| name.starts_with(b"socket:[")).count();
    assert_eq!(of_sockets, 4 + 2 + 1 + 5 + 7 + 1 + 1 + 3);
}
