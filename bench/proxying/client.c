/* The load of proxies: so much and no more, every byte that comes back checked, and that no byte and no end is missing or comes
 * too early. What it did is one line of JSON; what is wrong ends it.
 * usage: client requests|shorts PORT CONNECTIONS COUNT, messages of 64 bytes, each asked when the one before is answered
 *        client bulk PORT CONNECTIONS BYTES, of all connections together, there and back */
#include "../floor/load.h"

#define MESSAGE 64
#define PIECE (256 * 1024)
#define PERIOD 1000003 /* a prime, so that what is lost, doubled or in another order does not look right */

static char pattern[PERIOD + PIECE], data[PIECE];
static uint64_t total, issued, done, each;
static int connections, live;

static struct link {
    uint64_t begin, sent, received; /* of bulk: where in the pattern, and how far */
    char message[MESSAGE];
    int answered, ending;
} links[FILES + 1];

static void make_pattern(void)
{
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < PERIOD; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        pattern[i] = (char)(state >> 32);
        if (pattern[i] == 'S')
            pattern[i] = 'T';
    }
    memcpy(pattern + PERIOD, pattern, PIECE);
}

static void ask(int fd, char kind)
{
    struct link *link = &links[fd];
    memcpy(link->message, pattern + issued * MESSAGE % PERIOD, MESSAGE);
    link->message[0] = kind;
    memcpy(link->message + 1, &issued, sizeof issued);
    link->answered = 0;
    issued++;
    if (send(fd, link->message, MESSAGE, MSG_NOSIGNAL) != MESSAGE)
        fail("send");
}

static void open_link(char kind)
{
    int fd = connected();
    links[fd] = (struct link){0};
    watch(EPOLL_CTL_ADD, fd, EPOLLIN);
    ask(fd, kind);
    live++;
}

static void end_link(int fd)
{
    close(fd);
    live--;
}

/* A short connection is ended by the backend; the others are by this client, once there is nothing more to ask. */
static void read_answer(int fd, char kind)
{
    struct link *link = &links[fd];
    ssize_t size = recv(fd, data, MESSAGE + 1, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size < 0)
        fail("recv");
    if (size == 0) {
        if (!link->ending)
            wrong("the end before the answer");
        end_link(fd);
        if (kind == 'S' && issued < total)
            open_link(kind);
        return;
    }
    if (link->ending || size > MESSAGE - link->answered)
        wrong("more than the answer");
    if (memcmp(data, link->message + link->answered, size))
        wrong("another answer");
    if ((link->answered += size) < MESSAGE)
        return;
    done++;
    link->ending = kind == 'S' || issued == total;
    if (!link->ending)
        ask(fd, kind);
    else if (kind != 'S')
        shutdown(fd, SHUT_WR);
}

static void exchanges(char kind)
{
    while (live < connections && issued < total)
        open_link(kind);
    while (live) {
        int found = epoll_wait(poll_fd, events, EVENTS, -1);
        for (int i = 0; i < found; i++)
            read_answer(events[i].data.fd, kind);
    }
}

static void read_back(int fd, struct link *link)
{
    ssize_t size = recv(fd, data, sizeof data, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size < 0)
        fail("recv");
    if (size == 0) {
        if (link->received < each)
            wrong("the end before all has come back");
        end_link(fd);
        return;
    }
    if (link->received + size > link->sent)
        wrong("more than was sent");
    if (memcmp(data, pattern + (link->begin + link->received) % PERIOD, size))
        wrong("another byte");
    link->received += size;
    done += size;
}

static void send_on(int fd, struct link *link)
{
    uint64_t size = each - link->sent < PIECE ? each - link->sent : PIECE;
    ssize_t sent = send(fd, pattern + (link->begin + link->sent) % PERIOD, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN)
        return;
    if (sent < 0)
        fail("send");
    link->sent += sent;
    if (link->sent < each)
        return;
    shutdown(fd, SHUT_WR);
    watch(EPOLL_CTL_MOD, fd, EPOLLIN);
}

static void bulk(void)
{
    each = total / connections;
    total = each * connections;
    for (; live < connections; live++) {
        int fd = connected();
        links[fd] = (struct link){.begin = live * 250007ull % PERIOD};
        watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT);
    }
    while (live) {
        int found = epoll_wait(poll_fd, events, EVENTS, -1);
        for (int i = 0; i < found; i++) {
            int fd = events[i].data.fd;
            if (events[i].events & EPOLLOUT && links[fd].sent < each)
                send_on(fd, &links[fd]);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                read_back(fd, &links[fd]);
        }
    }
}

int main(int count, char **arguments)
{
    if (count != 5 || (connections = atoi(arguments[3])) < 1 || connections > FILES - 100 || (total = strtoull(arguments[4], 0, 10)) < 1) {
        fprintf(stderr, "usage: %s requests|shorts|bulk PORT CONNECTIONS COUNT\n", arguments[0]);
        return 2;
    }
    port = atoi(arguments[2]);
    signal(SIGALRM, overdue);
    alarm(120);
    allow_files();
    make_pattern();
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    uint64_t started = now();
    if (!strcmp(arguments[1], "bulk"))
        bulk();
    else
        exchanges(!strcmp(arguments[1], "shorts") ? 'S' : 'R');
    if (done != total)
        wrong("fewer answers than questions");
    printf("{\"done\":%lu,\"secs\":%.4f}\n", (unsigned long)done, (now() - started) / 1e9);
    return 0;
}
