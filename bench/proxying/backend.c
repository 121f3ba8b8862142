/* What proxies are measured in front of: it sends back what comes and ends when the other side has. A connection whose first
 * byte is S has its 64 bytes answered and is closed at once.
 * usage: backend, which says where it listens */
#include "../floor/common.h"

#define EVENTS 512
#define MESSAGE 64

static int poll_fd;
static char data[256 * 1024];

static struct link {
    char kind; /* its first byte, 0 before that */
    int seen, over;
    char *rest; /* what the other side has no room for yet; nothing is read meanwhile */
    size_t begin, end;
} links[FILES + 1];

static void watch(int how, int fd, uint32_t what)
{
    struct epoll_event event = {.events = what, .data.fd = fd};
    epoll_ctl(poll_fd, how, fd, &event);
}

static void finish(int fd)
{
    free(links[fd].rest);
    links[fd] = (struct link){0};
    close(fd);
}

static void flush(int fd, struct link *link)
{
    ssize_t size = send(fd, link->rest + link->begin, link->end - link->begin, MSG_NOSIGNAL);
    if (size < 0) {
        if (errno != EAGAIN)
            finish(fd);
        return;
    }
    link->begin += size;
    if (link->begin < link->end)
        return;
    free(link->rest);
    link->rest = 0;
    if (link->over)
        finish(fd);
    else
        watch(EPOLL_CTL_MOD, fd, EPOLLIN);
}

static void answer(int fd, struct link *link)
{
    ssize_t size = recv(fd, data, sizeof data, 0), sent;
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        finish(fd);
        return;
    }
    if (!link->kind)
        link->kind = data[0];
    if (link->kind == 'S')
        link->over = (link->seen += size) >= MESSAGE;
    sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        finish(fd);
    } else if (sent == size) {
        if (link->over)
            finish(fd);
    } else {
        link->begin = 0;
        link->end = size - (sent < 0 ? 0 : sent);
        link->rest = malloc(link->end);
        memcpy(link->rest, data + size - link->end, link->end);
        watch(EPOLL_CTL_MOD, fd, EPOLLOUT);
    }
}

static void accept_some(int listener)
{
    for (int fd; (fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        watch(EPOLL_CTL_ADD, fd, EPOLLIN);
}

int main(void)
{
    static struct epoll_event events[EVENTS];
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int listener = listen_on(0, SOCK_NONBLOCK);
    allow_files();
    getsockname(listener, (void *)&address, &size);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch(EPOLL_CTL_ADD, listener, EPOLLIN);
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int found = epoll_wait(poll_fd, events, EVENTS, -1);
        for (int i = 0; i < found; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_some(listener);
            else if (links[fd].rest)
                flush(fd, &links[fd]);
            else
                answer(fd, &links[fd]);
        }
    }
}
