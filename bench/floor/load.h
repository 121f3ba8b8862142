/* What clients share: a load on one thread, which ends at the first thing that is not as it must be. */
#include "common.h"
#include "histogram.h"

#define EVENTS 1024

static int port, poll_fd;
static struct epoll_event events[EVENTS];

static void fail(const char *what)
{
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(2);
}

static void wrong(const char *what)
{
    errno = 0;
    fail(what);
}

static void overdue(int signal)
{
    (void)signal;
    static const char text[] = "no answer for too long\n";
    _exit(write(2, text, sizeof text - 1) < 0 ? 3 : 2);
}

static int connect_by(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    if (fd < 0)
        fail("socket");
    if (!flags)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in address = loopback(port);
    if (connect(fd, (void *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        fail("connect");
    return fd;
}

static int connected(void)
{
    int fd = connect_by(0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void watch(int how, int fd, uint32_t what)
{
    struct epoll_event event = {.events = what, .data.fd = fd};
    if (epoll_ctl(poll_fd, how, fd, &event))
        fail("epoll_ctl");
}
